// GPUs in a build whose LibTorch has none.
#include "base/error.hpp"
#include "executor/device_forward.hpp"

namespace vime::executor {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::refused, "this vime was built with a LibTorch without CUDA",
              "configure with the cuda preset, which needs a LibTorch with CUDA");
}

}  // namespace

std::unique_ptr<Forward> make_device_forward(model::Decoder&, const DeviceForwardOptions&) {
  refuse();
}

}  // namespace vime::executor
