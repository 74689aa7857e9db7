// The forward pass on a GPU: all rows of a step at once, prompts through flash attention over the slotted KV cache,
// rows that are alone in their sequence through a kernel of their own, and the draws on the GPU too. A step of such
// rows alone is replayed from a CUDA graph, captured once for each size in a row of sizes; the host waits once, for
// what was drawn.
#pragma once

#include <memory>

#include "executor/forward.hpp"
#include "model/decoder.hpp"

namespace vime::executor {

struct DeviceForwardOptions {
  ForwardShape shape;
  int64_t rows_per_step = 8192;
  bool deterministic = false;
  bool graphs = true;
  // Of the GPU's memory, what this process may use in all; `free_before`: what was free before it took any.
  double memory_utilization = 0.9;
  uint64_t free_before = 0;
};

// Sizes the KV cache from the memory that is left; Error{exhausted} when not even one sequence fits.
std::unique_ptr<Forward> make_device_forward(model::Decoder& decoder, const DeviceForwardOptions& options);

}  // namespace vime::executor
