#include "base/error.hpp"
#include "model/mixed_product.hpp"

namespace vime::model {

void add_mixed_product(torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
  throw Error(ErrorKind::internal, "bfloat16 products with float32 sums need a GPU");
}

}  // namespace vime::model
