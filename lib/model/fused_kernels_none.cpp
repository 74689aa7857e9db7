#include "base/error.hpp"
#include "model/fused_kernels.hpp"

namespace vime::model {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::internal, "kernels were asked for where there are none");
}

}  // namespace

bool fused_kernels_fit(torch::Device, torch::ScalarType) {
  return false;
}

Normed kernel_add_rms_norm(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&, double) {
  refuse();
}
Heads kernel_norm_and_rotate(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&, int64_t,
                             const HeadNorms&, const Rotary::Angles&) {
  refuse();
}
Heads kernel_norm_and_rotate(const torch::Tensor&, int64_t, int64_t, const HeadNorms&, const Rotary::Angles&) {
  refuse();
}
torch::Tensor kernel_swiglu(const torch::Tensor&, const torch::Tensor&) {
  refuse();
}
torch::Tensor kernel_swiglu(const torch::Tensor&) {
  refuse();
}
torch::Tensor kernel_swiglu_product(const torch::Tensor&, const torch::Tensor&, int64_t) {
  refuse();
}
torch::Tensor kernel_embedding_rows(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
  refuse();
}

}  // namespace vime::model
