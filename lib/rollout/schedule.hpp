// Which rank trains which samples in which micro-batch. A pure function, so that the driver and every rank come to the
// same answer without talking; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vime::rollout {

using MicroBatch = std::vector<int64_t>;  // positions of samples in the batch, ascending

struct StepSchedule {
  // [dp rank][micro-batch]: every rank has the same number of micro-batches
  std::vector<std::vector<MicroBatch>> ranks;
  int64_t samples = 0;  // of all ranks: the step's global batch size
  int64_t micro_batches() const { return ranks.empty() ? 0 : static_cast<int64_t>(ranks.front().size()); }
};

struct ScheduleOptions {
  int64_t dp_size = 1;
  int64_t max_tokens = 4096;  // of one micro-batch; a longer sample has a micro-batch of its own
  int64_t steps = 1;          // optimizer steps of the rollout: consecutive, equally many samples each
};

// lengths [samples]: prompt + response tokens, each at least 1. Every sample is used exactly once. A micro-batch is
// empty only when a step has too few samples to give each rank one. Ranks are balanced by tokens (longest first, to the
// emptiest; Graham's LPT). Error{refused} when the samples do not divide into the steps.
std::vector<StepSchedule> schedule_micro_batches(std::span<const int64_t> lengths, const ScheduleOptions& options);

}  // namespace vime::rollout
