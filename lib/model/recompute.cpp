#include "model/recompute.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <utility>

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Part = std::function<torch::Tensor(const torch::Tensor&)>;

struct Holder : torch::CustomClassHolder {
  explicit Holder(Part run) : part(std::move(run)) {}
  Part part;
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const Part& part) {
    context->save_for_backward({x});
    context->saved_data["part"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(part));
    return part(x);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["part"].toCapsule());
    const torch::AutoGradMode with_gradients(true);
    torch::Tensor x = context->get_saved_variables()[0].detach();
    x.set_requires_grad(true);
    const torch::Tensor y = std::exchange(holder->part, {})(x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor recomputed(const Part& part, const torch::Tensor& x) {
  return torch::GradMode::is_enabled() ? Recomputed::apply(x, part) : part(x);
}

}  // namespace vime::model
