#include "model/fused.hpp"

#include "model/fused_kernels.hpp"
#include "model/linear.hpp"
#include "model/rms_norm.hpp"

namespace vime::model {
namespace {

bool to_kernels(const torch::Tensor& x) {
  return fused_kernels_fit(x.device(), x.scalar_type());
}

torch::Tensor as_heads(const torch::Tensor& rows, int64_t head_dim) {
  return rows.view({rows.size(0), rows.size(1) / head_dim, head_dim});
}

}  // namespace

Normed add_rms_norm(const torch::Tensor& x, const torch::Tensor& delta, const torch::Tensor& weight, double epsilon) {
  if (to_kernels(x)) return kernel_add_rms_norm(x, delta, weight, epsilon);
  const torch::Tensor sum = delta.defined() ? x + delta : x;
  return {sum, rms_norm(sum, weight, epsilon)};
}

Heads norm_and_rotate(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int64_t head_dim,
                      const HeadNorms& norms, const Rotary::Angles& angles) {
  if (to_kernels(q)) return kernel_norm_and_rotate(q, k, v, head_dim, norms, angles);
  torch::Tensor q_heads = as_heads(q, head_dim);
  torch::Tensor k_heads = as_heads(k, head_dim);
  if (norms.q_weight.defined()) {
    q_heads = rms_norm(q_heads, norms.q_weight, norms.epsilon);
    k_heads = rms_norm(k_heads, norms.k_weight, norms.epsilon);
  }
  return {rotate(q_heads, angles), rotate(k_heads, angles), as_heads(v, head_dim)};
}

Heads norm_and_rotate(const torch::Tensor& qkv, int64_t q_width, int64_t head_dim, const HeadNorms& norms,
                      const Rotary::Angles& angles) {
  if (to_kernels(qkv)) return kernel_norm_and_rotate(qkv, q_width, head_dim, norms, angles);
  const int64_t kv_width = (qkv.size(1) - q_width) / 2;
  const std::vector<torch::Tensor> parts = split_columns(qkv, {q_width, kv_width, kv_width});
  return norm_and_rotate(parts[0], parts[1], parts[2], head_dim, norms, angles);
}

torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  return to_kernels(gate) ? kernel_swiglu(gate, up) : torch::silu(gate) * up;
}

torch::Tensor swiglu(const torch::Tensor& gate_up) {
  if (to_kernels(gate_up)) return kernel_swiglu(gate_up);
  const int64_t width = gate_up.size(1) / 2;
  const std::vector<torch::Tensor> parts = split_columns(gate_up, {width, width});
  return swiglu(parts[0], parts[1]);
}

torch::Tensor swiglu_product(const torch::Tensor& gate_up, const torch::Tensor& weight, int64_t rows_per_product) {
  return kernel_swiglu_product(gate_up, weight, rows_per_product);
}

torch::Tensor embedding_rows(const torch::Tensor& table, const torch::Tensor& ids) {
  return to_kernels(table) ? kernel_embedding_rows(table, ids, ids) : torch::embedding(table, ids);
}

torch::Tensor own_embedding_rows(const torch::Tensor& table, const torch::Tensor& ids) {
  const torch::Tensor any = ids.clamp_min(0);
  const torch::Tensor rows = to_kernels(table) ? kernel_embedding_rows(table, any, ids) : torch::embedding(table, any);
  return rows.masked_fill((ids < 0).unsqueeze(1), 0);
}

}  // namespace vime::model
