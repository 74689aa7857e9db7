#include "model/mixed_product.hpp"

namespace vime::model {

void add_mixed_product(torch::Tensor& gradient, const torch::Tensor& dy, const torch::Tensor& x) {
  at::addmm_out(gradient, gradient, dy.t(), x, torch::kFloat32);
}

}  // namespace vime::model
