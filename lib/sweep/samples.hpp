// The samples that every leg of a sweep trains on: made up by a pure function of the seed, without an engine. They are
// chosen to be awkward: some sequences are shorter than the chunks that context parallelism cuts them into, so that
// ranks hold none of their tokens; some are long, so that ranks have unequal work; masks have holes; one sample has no
// token to learn from at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algo/advantage.hpp"
#include "rollout/train_batch.hpp"
#include "sweep/legs.hpp"

namespace vime::sweep {

inline constexpr int64_t kSteps = 2;          // rollouts, of one optimizer step each
inline constexpr int64_t kGroupSize = 4;      // samples of one prompt
inline constexpr int64_t kMaxPromptLen = 20;  // tokens
inline constexpr int64_t kMaxSequenceLen = 60;
inline constexpr int64_t kMaxResponseLen = kMaxSequenceLen - 1;

// Of one rollout: at least 16, in whole groups, and at least two for every data-parallel rank of every leg.
int64_t sample_count(const std::vector<Leg>& legs);

struct SampleOptions {
  uint64_t seed = 0;
  int64_t vocab_size = 0;
  int64_t samples = 16;  // of one rollout; a multiple of kGroupSize
  algo::GroupAdvantageOptions advantage;
  bool normalize_rewards = true;  // false: the advantage is the reward
};

// One batch for each of kSteps rollouts, all of the run `run_id`.
std::vector<rollout::TrainBatch> make_samples(const SampleOptions& options, const std::string& run_id);

// Each sample's tokens.
std::vector<std::vector<int64_t>> sequences(const rollout::TrainBatch& batch);

}  // namespace vime::sweep
