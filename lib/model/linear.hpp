// Products with weights in both directions. On a GPU the gradient of a weight that has a main gradient is added to it
// in float32 by the product itself, so that no gradient of the weight's own type exists, and what made the input can be
// run again in the backward pass instead of keeping it. On the CPU it is LibTorch's own linear layer.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace vime::model {

// Makes a product's input once more, the same bits; called without gradients, at most once.
using MakeAgain = std::function<torch::Tensor()>;

// x w' + b: [rows, in] -> [rows, out]; weight: [out, in]; bias: [out] or undefined. rows_per_product: the rows of x go
// through products of so many rows each, the last filled up with zeros, so that a row's result depends on nothing but
// the row; 0: all at once.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     int64_t rows_per_product = 0, const MakeAgain& again = {});

// The product alone, without gradients: x w'.
torch::Tensor product(const torch::Tensor& x, const torch::Tensor& weight, int64_t rows_per_product);

// Columns of y side by side as views of it: [rows, sum of widths] -> [rows, width] each. Their gradients come together
// in one copy.
std::vector<torch::Tensor> split_columns(const torch::Tensor& y, std::vector<int64_t> widths);

// gradient += dy' x: float32 [out, in] += [rows, out]' [rows, in]. Sums in float32 whatever the inputs' type; not for
// bfloat16 on the CPU.
void add_product(torch::Tensor& gradient, const torch::Tensor& dy, const torch::Tensor& x);

}  // namespace vime::model
