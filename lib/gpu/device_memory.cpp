#include "gpu/device_memory.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "gpu/check.hpp"
#include "gpu/device.hpp"

namespace vime::gpu {
namespace {

// CUDA puts smaller allocations together into one block, and a handle opens the block's beginning.
constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

}  // namespace

DeviceMemory::DeviceMemory(uint64_t bytes, Use use) : bytes_(bytes), nonce_(use == Use::shared ? random_token() : "") {
  VIME_CUDA(cudaGetDevice(&device_));
  const uint64_t unit = use == Use::shared ? kBlockBytes : 1;
  const uint64_t wanted = (std::max<uint64_t>(bytes, 1) + unit - 1) / unit * unit;
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, wanted);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const MemoryInfo info = memory_info();
    throw Error(ErrorKind::exhausted, "GPU " + std::to_string(device_) + ": " + format_bytes(wanted) + " wanted, " +
                                          format_bytes(info.free_bytes) + " of " + format_bytes(info.total_bytes) +
                                          " are free");
  }
  check(result, "cudaMalloc(&memory, wanted)");
  data_ = static_cast<std::byte*>(memory);
}

DeviceMemory::~DeviceMemory() {
  VIME_CUDA_WARN(cudaFree(data_));
}

std::string DeviceMemory::handle() const {
  VIME_CHECK(!nonce_.empty(), "this memory is the process's own");
  cudaIpcMemHandle_t handle{};
  VIME_CUDA(cudaIpcGetMemHandle(&handle, data_));
  return "cuda:" + std::to_string(bytes_) + ":" + nonce_ + ":" + hex_of(handle.reserved, sizeof handle.reserved);
}

}  // namespace vime::gpu
