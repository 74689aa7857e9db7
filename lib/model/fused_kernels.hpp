// The functions of fused.hpp as kernels of lib/gpu behind autograd. fused.cpp decides where they are taken.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/fused.hpp"

namespace vime::model {

// Whether the functions below take tensors of this type on this device: bfloat16 on a GPU.
bool fused_kernels_fit(torch::Device device, torch::ScalarType dtype);

Normed kernel_add_rms_norm(const torch::Tensor& x, const torch::Tensor& delta, const torch::Tensor& weight,
                           double epsilon);
Heads kernel_norm_and_rotate(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int64_t head_dim,
                             const HeadNorms& norms, const Rotary::Angles& angles);
Heads kernel_norm_and_rotate(const torch::Tensor& qkv, int64_t q_width, int64_t head_dim, const HeadNorms& norms,
                             const Rotary::Angles& angles);
torch::Tensor kernel_swiglu(const torch::Tensor& gate, const torch::Tensor& up);
torch::Tensor kernel_swiglu(const torch::Tensor& gate_up);
torch::Tensor kernel_swiglu_product(const torch::Tensor& gate_up, const torch::Tensor& weight,
                                    int64_t rows_per_product);
// The rows `ids`; their gradients go to the rows gradient_ids, and to none where that is below 0. The rows of one id
// are added up one after the other, so that tokens of other ranks must not all stand for the same one.
torch::Tensor kernel_embedding_rows(const torch::Tensor& table, const torch::Tensor& ids,
                                    const torch::Tensor& gradient_ids);

}  // namespace vime::model
