#include "channels/device_arena.hpp"

#include "gpu/ipc.hpp"

namespace vime::channels {
namespace {

class DeviceMapping final : public weights::Mapping {
 public:
  explicit DeviceMapping(const std::string& handle) : mapping_(handle) {}
  const std::byte* data() const override { return mapping_.data(); }
  uint64_t bytes() const override { return mapping_.bytes(); }

 private:
  gpu::IpcMapping mapping_;
};

}  // namespace

std::unique_ptr<weights::Mapping> open_device_mapping(const std::string& handle) {
  return std::make_unique<DeviceMapping>(handle);
}

}  // namespace vime::channels
