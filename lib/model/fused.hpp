// What a layer does between its matrix products and attention. bfloat16 on a GPU goes to kernels that do each of these
// in one pass (lib/gpu), forward and backward, with float32 inside; everything else is LibTorch's operators. All are
// differentiable; on a GPU gradients of weights are added to their main gradients where there are some.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/rotary.hpp"

namespace vime::model {

// The residual addition and the norm behind it: sum = x + delta, normal = weight * sum / rms(sum). x, delta: [rows,
// width]; weight: [width]. An undefined delta adds nothing: the sum is x.
struct Normed {
  torch::Tensor sum;
  torch::Tensor normal;
};
Normed add_rms_norm(const torch::Tensor& x, const torch::Tensor& delta, const torch::Tensor& weight, double epsilon);

// What attention is given: [tokens, heads, head_dim] each, v as it was.
struct Heads {
  torch::Tensor q, k, v;
};
// Norms of single heads before the rotation; weights: [head_dim], or undefined where the architecture has none.
struct HeadNorms {
  torch::Tensor q_weight, k_weight;
  double epsilon = 0;
};
// q: [tokens, heads * head_dim], k and v: [tokens, kv heads * head_dim].
Heads norm_and_rotate(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int64_t head_dim,
                      const HeadNorms& norms, const Rotary::Angles& angles);
// The same of [tokens, q_width + 2 * kv_width], which holds q, k and v side by side.
Heads norm_and_rotate(const torch::Tensor& qkv, int64_t q_width, int64_t head_dim, const HeadNorms& norms,
                      const Rotary::Angles& angles);

// silu(gate) * up: [rows, width] each.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);
// The same of [rows, 2 * width], gate and up side by side.
torch::Tensor swiglu(const torch::Tensor& gate_up);
// swiglu(gate_up) w', of which only gate_up is kept: the product that enters the down projection is made again in the
// same pass that computes the gradient of gate_up. Only where fused_kernels_fit() (fused_kernels.hpp).
torch::Tensor swiglu_product(const torch::Tensor& gate_up, const torch::Tensor& weight, int64_t rows_per_product);

// Rows of the table: [vocab, width] by int64 [tokens] -> [tokens, width].
torch::Tensor embedding_rows(const torch::Tensor& table, const torch::Tensor& ids);
// The same of a part of a table: ids below 0 are tokens whose rows other ranks have; they give zeros and take no
// gradient.
torch::Tensor own_embedding_rows(const torch::Tensor& table, const torch::Tensor& ids);

}  // namespace vime::model
