#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "gpu/device.hpp"
#include "model/torch_device.hpp"

namespace vime::model {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

uint64_t bytes(int64_t count) {
  return static_cast<uint64_t>(count);
}

}  // namespace

torch::Device select_torch_device(const std::string& device, const std::string& uuid) {
  if (device == "cpu") return torch::kCPU;
  const int ordinal = gpu::select_device(uuid);
  const torch::Device selected(torch::kCUDA, static_cast<c10::DeviceIndex>(ordinal));
  c10::cuda::set_device(selected.index());
  if (const int sharing = gpu::devices_on_gpu(); sharing > 1) {
    torch::empty({1}, selected);  // the allocator is there from the first tensor on
    allocator::setMemoryFraction(1.0 / sharing, selected.index());
  }
  return selected;
}

TorchMemory torch_memory(torch::Device device) {
  if (!device.is_cuda()) return {};
  const allocator::DeviceStats stats = allocator::getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto& used = stats.allocated_bytes[kAll];
  return {bytes(used.current), bytes(used.peak)};
}

void reset_peak_memory(torch::Device device) {
  if (device.is_cuda()) allocator::resetPeakStats(device.index());
}

void release_cached_memory(torch::Device device) {
  if (device.is_cuda()) allocator::emptyCache();
}

gpu::Stream current_stream(torch::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

void synchronize(torch::Device device) {
  if (device.is_cuda()) gpu::synchronize();
}

}  // namespace vime::model
