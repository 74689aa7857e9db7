#include "base/error.hpp"
#include "trainer/fused_update.hpp"

namespace vime::trainer {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::internal, "an optimizer's kernel in a vime without CUDA");
}

}  // namespace

double fused_sum_of_squares(const std::vector<torch::Tensor>&) {
  refuse();
}
void fused_adamw(const FusedAdamW&, torch::Tensor&, torch::Tensor&, torch::Tensor&, const torch::Tensor&,
                 torch::Tensor) {
  refuse();
}

}  // namespace vime::trainer
