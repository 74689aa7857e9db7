#include "model/main_gradient.hpp"

#include "base/error.hpp"

namespace vime::model {

torch::Tensor main_gradient(const torch::Tensor& parameter) {
  if (!parameter.is_cuda() || !parameter.is_leaf()) return {};
  const torch::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.scalar_type() != torch::kFloat32) return {};
  return gradient;
}

// Autograd's own setter demands the parameter's type; the slot and what adds to it do not.
void set_main_gradient(torch::Tensor& parameter, torch::Tensor gradient) {
  VIME_CHECK(!gradient.defined() || (gradient.scalar_type() == torch::kFloat32 &&
                                     gradient.sizes() == parameter.sizes() && gradient.device() == parameter.device()),
             "a parameter's main gradient is float32 and lies as the parameter does");
  parameter.mutable_grad() = std::move(gradient);
}

}  // namespace vime::model
