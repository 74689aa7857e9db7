#include "model/linear.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <algorithm>
#include <utility>

#include "model/main_gradient.hpp"
#include "model/mixed_product.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Holder : torch::CustomClassHolder {
  explicit Holder(MakeAgain make) : again(std::move(make)) {}
  MakeAgain again;
};

struct Linear : torch::autograd::Function<Linear> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const c10::optional<torch::Tensor>& maybe_bias, int64_t rows_per_product,
                               const MakeAgain& again) {
    const torch::Tensor bias = maybe_bias.value_or(torch::Tensor());
    if (again) context->saved_data["again"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(again));
    context->save_for_backward({again ? torch::Tensor() : x, weight, bias});
    const torch::Tensor y = product(x, weight, rows_per_product);
    return bias.defined() ? y + bias : y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &weight = saved[1], &bias = saved[2];
    const torch::Tensor& dy = gradients[0];
    tensor_list result(5);
    result[1] = by_weight(context, dy, saved[0], weight);
    if (context->needs_input_grad(0)) result[0] = dy.mm(weight);
    if (bias.defined()) {
      torch::Tensor main = main_gradient(bias);
      if (main.defined()) {
        main.add_(dy.sum(0, false, torch::kFloat32));
      } else {
        result[2] = dy.sum(0);
      }
    }
    return result;
  }

 private:
  static torch::Tensor by_weight(AutogradContext* context, const torch::Tensor& dy, const torch::Tensor& kept,
                                 const torch::Tensor& weight) {
    if (!context->needs_input_grad(1)) return {};
    torch::Tensor x = kept;
    if (!x.defined()) {
      const torch::NoGradGuard no_grad;
      const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["again"].toCapsule());
      x = std::exchange(holder->again, {})();  // and what it was made of goes as soon as autograd's own copies go
    }
    torch::Tensor main = main_gradient(weight);
    if (!main.defined()) return dy.t().mm(x);
    add_product(main, dy, x);
    return {};
  }
};

struct SplitColumns : torch::autograd::Function<SplitColumns> {
  static tensor_list forward(AutogradContext* context, const torch::Tensor& y, const std::vector<int64_t>& widths) {
    context->saved_data["widths"] = widths;
    context->saved_data["rows"] = y.size(0);
    context->set_materialize_grads(false);
    const at::AutoDispatchBelowADInplaceOrView untracked;  // views of their own: nobody writes to them
    return y.split_with_sizes(widths, 1);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const std::vector<int64_t> widths = context->saved_data["widths"].toIntVector();
    torch::TensorOptions options;
    for (const torch::Tensor& gradient : gradients) {
      if (gradient.defined()) options = gradient.options();
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined())
        gradients[i] = torch::zeros({context->saved_data["rows"].toInt(), widths[i]}, options);
    }
    return {torch::cat(gradients, 1), torch::Tensor()};
  }
};

}  // namespace

std::vector<torch::Tensor> split_columns(const torch::Tensor& y, std::vector<int64_t> widths) {
  return SplitColumns::apply(y, widths);
}

torch::Tensor product(const torch::Tensor& x, const torch::Tensor& weight, int64_t rows_per_product) {
  const torch::Tensor by = weight.t();
  if (rows_per_product == 0) return x.mm(by);
  const int64_t rows = x.size(0);
  torch::Tensor y = torch::empty({rows, weight.size(0)}, x.options());
  for (int64_t begin = 0; begin < rows; begin += rows_per_product) {
    const int64_t count = std::min(rows_per_product, rows - begin);
    torch::Tensor out = y.narrow(0, begin, count);
    if (count == rows_per_product) {
      at::mm_out(out, x.narrow(0, begin, count), by);
    } else {
      const torch::Tensor padded =
          torch::constant_pad_nd(x.narrow(0, begin, count), {0, 0, 0, rows_per_product - count});
      out.copy_(padded.mm(by).narrow(0, 0, count));
    }
  }
  return y;
}

void add_product(torch::Tensor& gradient, const torch::Tensor& dy, const torch::Tensor& x) {
  if (dy.scalar_type() == gradient.scalar_type()) {
    gradient.addmm_(dy.t(), x);
  } else {
    add_mixed_product(gradient, dy, x);
  }
}

torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     int64_t rows_per_product, const MakeAgain& again) {
  if (!x.is_cuda() && rows_per_product == 0 && !again) return torch::linear(x, weight, bias);
  // Autograd takes no undefined tensors among a function's inputs.
  const auto maybe_bias = bias.defined() ? c10::optional<torch::Tensor>(bias) : c10::nullopt;
  return Linear::apply(x, weight, maybe_bias, rows_per_product, again);
}

}  // namespace vime::model
