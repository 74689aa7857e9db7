// Products of bfloat16 with float32 sums, which LibTorch has on GPUs only.
#pragma once

#include <torch/types.h>

namespace vime::model {

// gradient += dy' x: float32 [out, in] += bfloat16 [rows, out]' [rows, in].
void add_mixed_product(torch::Tensor& gradient, const torch::Tensor& dy, const torch::Tensor& x);

}  // namespace vime::model
