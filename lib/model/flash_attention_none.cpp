#include "base/error.hpp"
#include "model/flash_attention.hpp"

namespace vime::model {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::internal, "flash attention in a vime without CUDA");
}

}  // namespace

bool flash_attention_fits(torch::Device, torch::ScalarType) {
  return false;
}
Attention flash_packed_attention(const std::vector<int64_t>&, torch::Device, bool) {
  refuse();
}
Attention flash_context_parallel_attention(const std::vector<QuerySpan>&, int64_t, CollectivesPtr, torch::Device) {
  refuse();
}

}  // namespace vime::model
