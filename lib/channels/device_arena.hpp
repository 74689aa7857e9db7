// A GPU's memory as the push knows memory: an arena that another process of the same machine can read, and its mapping.
#pragma once

#include <memory>
#include <string>

#include "gpu/device_memory.hpp"
#include "weights/arena.hpp"

namespace vime::channels {

// Of the calling thread's GPU. Contents are not initialised.
class DeviceArena final : public weights::Arena {
 public:
  explicit DeviceArena(uint64_t bytes) : memory_(bytes), handle_(memory_.handle()) {}
  std::byte* data() const override { return memory_.data(); }
  uint64_t bytes() const override { return memory_.bytes(); }
  std::string handle() const override { return handle_; }

 private:
  gpu::DeviceMemory memory_;
  std::string handle_;
};

// Opens a DeviceArena's handle on the calling thread's GPU.
std::unique_ptr<weights::Mapping> open_device_mapping(const std::string& handle);

}  // namespace vime::channels
