// Sums over the ranks that hold the same part of a parameter within one replica: after the backward pass each has the
// gradient of its own work only. One thread; collective.
#pragma once

#include <torch/types.h>

#include "arch/parameters.hpp"
#include "model/collectives.hpp"

namespace vime::trainer {

// Norms, biases and shared key/value heads under tensor and sequence parallelism: one gather for all of them.
// gradient: float32, an element for each of the arena's.
void sum_over_tensor_parallel_copies(torch::Tensor& gradient, const arch::ArenaLayout& layout, model::Collectives& tp);

// Embeddings that are the head as well, held by the first and the last stage (`ends`).
void sum_tied_embeddings(torch::Tensor& gradient, const arch::ArenaLayout& layout, model::Collectives& ends);

}  // namespace vime::trainer
