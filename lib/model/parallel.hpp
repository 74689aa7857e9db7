// Communication between tensor-parallel or context-parallel ranks as differentiable functions. Each is collective in
// the direction that communicates: all ranks have to run the same graph forward and backward. With one rank they return
// their argument.
#pragma once

#include <torch/types.h>

#include "model/collectives.hpp"

namespace vime::model {

// Sum over all ranks in rank order; the gradient passes through.
torch::Tensor sum_over_ranks(const torch::Tensor& partial, const CollectivesPtr& tp);
// The same tensor; the gradients of `sharers` neighbouring ranks (a divisor of the size) are summed. For what all of
// them hold but each uses for a part of the work only.
torch::Tensor share_with_ranks(const torch::Tensor& value, const CollectivesPtr& tp, int sharers);
// Columns of all ranks side by side, cut to `columns`: [rows, at most part] of each -> [rows, columns] with part =
// ceil(columns / size). The gradient of each rank is its own slice.
torch::Tensor gather_columns(const torch::Tensor& mine, const CollectivesPtr& tp, int64_t columns);
// Rows of all ranks one behind the other: [rows, ...] of each -> [size * rows, ...]. The gradient is the sum over all
// ranks of this rank's rows.
torch::Tensor gather_rows(const torch::Tensor& mine, const CollectivesPtr& ranks);
// The way back: the sum over all ranks of this rank's share of the rows, [rows, ...] -> [rows / size, ...]. The
// gradient is gathered.
torch::Tensor sum_to_rows(const torch::Tensor& partial, const CollectivesPtr& ranks);

}  // namespace vime::model
