// Tensor-parallel communication as differentiable functions. Each is collective in the direction that communicates: all
// ranks have to run the same graph forward and backward. With one rank they return their argument.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "model/decoder.hpp"

namespace vime::model {

using TensorParallelPtr = std::shared_ptr<TensorParallel>;

// Sum over all ranks in rank order; the gradient passes through.
torch::Tensor sum_over_ranks(const torch::Tensor& partial, const TensorParallelPtr& tp);
// The same tensor; the gradients of `sharers` neighbouring ranks (a divisor of the size) are summed. For what all of
// them hold but each uses for a part of the work only.
torch::Tensor share_with_ranks(const torch::Tensor& value, const TensorParallelPtr& tp, int sharers);
// Columns of all ranks side by side, cut to `columns`: [rows, at most part] of each -> [rows, columns] with part =
// ceil(columns / size). The gradient of each rank is its own slice.
torch::Tensor gather_columns(const torch::Tensor& mine, const TensorParallelPtr& tp, int64_t columns);

}  // namespace vime::model
