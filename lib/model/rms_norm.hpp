// Root-mean-square normalisation (Zhang and Sennrich 2019), computed in float32 whatever the input's type.
#pragma once

#include <torch/types.h>

namespace vime::model {

// weight * (x / sqrt(mean(x^2) + epsilon)) over the last dimension; the product with weight is taken in x's type, as
// transformers does. x: [..., width], weight: [width].
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon);

}  // namespace vime::model
