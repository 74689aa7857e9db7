// The files that trainer ranks write when /train is given a "dump" folder: rank_<R>.safetensors with float32
// "grad.<HF name>" and "weight.<HF name>" of every parameter that the rank holds, in the rank's own shape, and float64
// "logprobs" and "logprobs_after" of every response token of the batch. Reading blocks on the disk.
#pragma once

#include "arch/model_config.hpp"
#include "base/files.hpp"
#include "sweep/record.hpp"

namespace vime::sweep {

// What a rank's file must hold, by the layout alone.
struct RankLayout {
  placement::TrainerRank place;
  placement::Layout layout;
};

// Error{check_failed} naming the rank and the tensor: one that is missing, of another shape or type, or that the rank
// should not hold.
RankRecord read_rank_dump(const fs::path& folder, const arch::ModelConfig& config, const RankLayout& rank,
                          int64_t response_tokens);

// "rank 5 (tp 1, pp 1, cp 0, dp 0)"
std::string rank_name(const placement::TrainerRank& place);

}  // namespace vime::sweep
