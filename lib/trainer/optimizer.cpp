#include "trainer/optimizer.hpp"

#include <cmath>

namespace vime::trainer {

Optimizer::Optimizer(model::Decoder& decoder, const OptimizerOptions& options) : options_(options) {
  int64_t elements = 0;
  for (const auto& parameter : decoder.parameters()) elements += parameter.value.numel();
  flat_gradient_ = torch::zeros({elements}, torch::kFloat32);
  std::vector<torch::Tensor> decayed, plain;
  int64_t offset = 0;
  for (auto& parameter : decoder.parameters()) {
    const int64_t count = parameter.value.numel();
    // Autograd adds into a gradient that exists in place, so it stays a view of the flat buffer.
    parameter.value.mutable_grad() = flat_gradient_.narrow(0, offset, count).view(parameter.value.sizes());
    offset += count;
    (parameter.value.dim() >= 2 ? decayed : plain).push_back(parameter.value);
  }
  const auto group_options = [&](double weight_decay) {
    return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(options.lr)
                                                            .betas({options.beta1, options.beta2})
                                                            .eps(options.eps)
                                                            .weight_decay(weight_decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, group_options(options.weight_decay));
  groups.emplace_back(plain, group_options(0.0));
  adamw_ = std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(options.lr));
}

Optimizer::Result Optimizer::step() {
  Result result;
  result.grad_norm = flat_gradient_.to(torch::kFloat64).norm().item<double>();
  // Adam's moments never recover from a NaN, so a bad gradient must not reach them.
  if (!std::isfinite(result.grad_norm)) return result;
  if (options_.clip_grad > 0 && result.grad_norm > options_.clip_grad) {
    flat_gradient_.mul_(options_.clip_grad / (result.grad_norm + 1e-6));
  }
  adamw_->step();
  result.applied = true;
  return result;
}

}  // namespace vime::trainer
