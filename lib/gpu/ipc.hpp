// Another process's DeviceMemory, mapped into this one. Opening takes some 25 ms the first time, so mappings are kept.
// The owner's memory must outlive the mapping. Both processes are on the same machine; the GPU is the owner's or one
// that can reach it (NVLink, PCIe).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace vime::gpu {

class IpcMapping {
 public:
  // handle: DeviceMemory::handle() of another process. Error{refused} for text that is no such handle,
  // Error{process_failed} when CUDA cannot open it (its owner has gone, or is this very process).
  explicit IpcMapping(const std::string& handle);
  ~IpcMapping();
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace vime::gpu
