#include "base/error.hpp"
#include "model/torch_device.hpp"

namespace vime::model {

torch::Device select_torch_device(const std::string& device, const std::string&) {
  if (device == "cpu") return torch::kCPU;
  throw Error(ErrorKind::refused, "this vime cannot compute on \"" + device + "\"",
              "configure with -DVIME_CUDA=ON and a LibTorch that has CUDA, or take device: cpu");
}
TorchMemory torch_memory(torch::Device) {
  return {};
}
void reset_peak_memory(torch::Device) {}
void release_cached_memory(torch::Device) {}
gpu::Stream current_stream(torch::Device) {
  return nullptr;
}
void synchronize(torch::Device) {}

}  // namespace vime::model
