// The rollout's figures, summed in the order of the sample index so that they do not depend on the order of arrival.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/json.hpp"
#include "rollout/sample.hpp"

namespace vime::rollout {

struct RolloutMetrics {
  int64_t samples = 0;
  double raw_reward = 0.0;  // mean over the samples that have one; NaN when none has
  double response_len_mean = 0.0;
  double response_len_median = 0.0;
  int64_t response_len_min = 0;
  int64_t response_len_max = 0;
  double truncated_ratio = 0.0;
  int64_t groups = 0;
  int64_t zero_std_groups = 0;  // groups whose rewards are all equal: nothing is learnt from them
  int64_t without_reward = 0;   // samples that were scored with no usable number
  int64_t aborted = 0;
  int64_t failed = 0;
};

// Error{process_failed} for no samples.
RolloutMetrics rollout_metrics(std::span<const Sample> samples);

// Under slime's names: {"rollout/raw_reward": ..., "rollout/response_len/mean": ..., ...}.
Json to_json(const RolloutMetrics& metrics);

}  // namespace vime::rollout
