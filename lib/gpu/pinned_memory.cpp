#include "gpu/pinned_memory.hpp"

#include <algorithm>

#include "gpu/check.hpp"

namespace vime::gpu {

PinnedMemory::PinnedMemory(uint64_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  VIME_CUDA(cudaMallocHost(&memory, std::max<uint64_t>(bytes, 1)));
  data_ = static_cast<std::byte*>(memory);
}

PinnedMemory::~PinnedMemory() {
  VIME_CUDA_WARN(cudaFreeHost(data_));
}

void copy_memory(void* to, const void* from, uint64_t bytes) {
  VIME_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  VIME_CUDA(cudaStreamSynchronize(nullptr));  // some kinds of copy return before they are done
}

void copy_memory(void* to, const void* from, uint64_t bytes, Stream stream) {
  VIME_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

}  // namespace vime::gpu
