// What a training step needs of a device's memory, from shapes alone; planner and trainer agree on it.
#pragma once

#include <cstdint>

#include "arch/model_config.hpp"
#include "arch/parameters.hpp"
#include "arch/recompute.hpp"

namespace vime::arch {

struct TrainingWork {
  tensor::DType dtype = tensor::DType::bf16;  // of weights and activations
  int tp_rank = 0, tp_size = 1;
  Stage stage;
  int sharers = 1;         // ranks that share the optimizer's state: DP x CP
  int cp_size = 1;         // context-parallel ranks, whose keys and values are gathered
  bool reference = false;  // a reference model's weights beside the policy's
  int moments = 2;         // of the optimizer, for each parameter
  int64_t tokens = 0;      // of a micro-batch on this rank
  int64_t in_flight = 1;   // micro-batches whose activations a stage holds at once
  Recompute recompute = Recompute::selective;
  int64_t head_chunk = 4096;  // rows of logits that exist at a time
};

struct TrainingMemory {
  uint64_t weights = 0;
  uint64_t master = 0;  // float32 copy of weights of another type, this rank's part
  uint64_t gradients = 0;
  uint64_t sums = 0;         // of gradients over the ranks that share the state, this rank's part
  uint64_t moments = 0;      // this rank's part
  uint64_t activations = 0;  // kept from forward to backward
  uint64_t transient = 0;    // the largest of what a step needs for a moment: the head's chunk, a layer's gradients
  uint64_t libraries = 0;    // workspaces
  uint64_t total() const { return weights + master + gradients + sums + moments + activations + transient + libraries; }
};
TrainingMemory training_memory(const ModelConfig& config, const TrainingWork& work);

}  // namespace vime::arch
