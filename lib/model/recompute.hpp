// Parts of a model whose activations are computed again in the backward pass instead of being kept (Chen et al. 2016).
#pragma once

#include <torch/types.h>

#include <functional>

namespace vime::model {

// part(x), of which only x is kept. The part runs once more in the backward pass, with the same collectives, so that
// all ranks have to do alike.
torch::Tensor recomputed(const std::function<torch::Tensor(const torch::Tensor&)>& part, const torch::Tensor& x);

}  // namespace vime::model
