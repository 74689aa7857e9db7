#include "trainer/fused_update.hpp"

#include "gpu/optimizer_kernels.hpp"
#include "model/torch_device.hpp"

namespace vime::trainer {
namespace {

float as_float(double value) {
  return static_cast<float>(value);
}

}  // namespace

double fused_sum_of_squares(const std::vector<torch::Tensor>& parts) {
  if (parts.empty()) return 0.0;
  const auto options = parts.front().options().dtype(torch::kFloat64);
  torch::Tensor workspace = torch::empty({gpu::kSquareSums}, options);
  torch::Tensor result = torch::zeros({1}, options);
  for (const torch::Tensor& part : parts) {
    gpu::add_sum_of_squares(part.data_ptr<float>(), part.numel(), workspace.data_ptr<double>(),
                            result.data_ptr<double>(), model::current_stream(part.device()));
  }
  return result.item<double>();
}

void fused_adamw(const FusedAdamW& step, torch::Tensor& master, torch::Tensor& exp_avg, torch::Tensor& exp_avg_sq,
                 const torch::Tensor& gradient, torch::Tensor weights) {
  std::vector<gpu::DecayRange> ranges;
  for (const auto& [end, decays] : step.decays) ranges.push_back({end, decays ? as_float(step.weight_decay) : 0.0f});
  gpu::AdamwState state;
  state.master = master.data_ptr<float>();
  state.exp_avg = exp_avg.data_ptr<float>();
  state.exp_avg_sq = exp_avg_sq.data_ptr<float>();
  state.gradient = gradient.data_ptr<float>();
  state.weight = weights.defined() ? static_cast<gpu::Bf16*>(weights.data_ptr()) : nullptr;
  state.count = master.numel();
  const gpu::AdamwStep numbers{
      as_float(step.lr),          as_float(step.beta1),       as_float(step.beta2),         as_float(step.eps),
      as_float(step.correction1), as_float(step.correction2), as_float(step.gradient_scale)};
  gpu::adamw(state, numbers, ranges.data(), static_cast<int64_t>(ranges.size()),
             model::current_stream(master.device()));
}

}  // namespace vime::trainer
