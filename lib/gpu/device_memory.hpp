// Memory of the calling thread's GPU straight from cudaMalloc, so that other processes can open it: caching and pooled
// allocators hand out parts of blocks, whose handles name something else. Contents are not initialised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace vime::gpu {

class DeviceMemory {
 public:
  // shared: other processes open it, which takes whole blocks of 2 MiB. own: for this process alone, without a handle.
  enum class Use { shared, own };
  explicit DeviceMemory(uint64_t bytes, Use use = Use::shared);  // Error{exhausted} with the wanted and the free bytes
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  int device() const { return device_; }
  // "cuda:<bytes>:<nonce>:<128 hexadecimal digits>", CUDA's own 64-byte handle last. The nonce tells apart two
  // allocations that CUDA gives the same handle, one after the other.
  std::string handle() const;

 private:
  uint64_t bytes_;
  int device_ = 0;
  std::string nonce_;
  std::byte* data_ = nullptr;
};

}  // namespace vime::gpu
