// A rank's answer to a step's probe (rollout/step_probe.hpp), held against what the layout says that it must be. Pure.
#pragma once

#include "arch/model_config.hpp"
#include "rollout/step_probe.hpp"
#include "sweep/record.hpp"

namespace vime::sweep {

// What a rank must hold, by the layout alone.
struct RankLayout {
  placement::TrainerRank place;
  placement::Layout layout;
};

// compared: whether the rank was given a file to hold its values against.
// Error{check_failed} naming the rank and the parameter: one that is missing, of another shape or place, that the rank
// should not hold, or not all of whose elements were compared; and log-probs of more or fewer tokens.
RankRecord rank_record(const rollout::StepAnswer& answer, const arch::ModelConfig& config, const RankLayout& rank,
                       int64_t response_tokens, bool compared);

// "rank 5 (tp 1, pp 1, cp 0, dp 0)"
std::string rank_name(const placement::TrainerRank& place);

}  // namespace vime::sweep
