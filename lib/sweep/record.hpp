// What one optimizer step left behind, of all ranks: the elements as figures, which the ranks work out. Plain data.
#pragma once

#include <string>
#include <vector>

#include "arch/parameters.hpp"
#include "placement/placement.hpp"
#include "rollout/step_probe.hpp"
#include "tensor/tensor.hpp"

namespace vime::sweep {

using rollout::TensorFigures;

// A rank's part of one parameter. Rows first, as everywhere.
struct ShardRecord {
  std::string name;  // Hugging Face name
  tensor::Shape full_shape;
  arch::Shard shard;
  TensorFigures gradient;  // of the whole batch, before clipping
  TensorFigures weight;    // after the step
};

struct RankRecord {
  placement::TrainerRank place;
  std::vector<ShardRecord> shards;  // in checkpoint order
  // Of every response token of the batch, in the batch's order; NaN where this rank did not compute it.
  std::vector<double> logprobs;        // before the step
  std::vector<double> logprobs_after;  // after it
};

// The baseline's has one rank, which holds everything whole.
struct StepRecord {
  int step = 1;  // from 1
  placement::Layout layout;
  double loss = 0.0;
  double grad_norm = 0.0;
  std::vector<RankRecord> ranks;
};

}  // namespace vime::sweep
