// Memory of the host that the GPU reads and writes at the full speed of its link. Contents are not initialised.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/stream.hpp"

namespace vime::gpu {

class PinnedMemory {
 public:
  explicit PinnedMemory(uint64_t bytes);  // Error{exhausted} when the system has no more
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

// Between any two memories, pinned or a GPU's; blocks until it is done.
void copy_memory(void* to, const void* from, uint64_t bytes);
// Given to a stream; both memories are the stream's until it is done.
void copy_memory(void* to, const void* from, uint64_t bytes, Stream stream);

}  // namespace vime::gpu
