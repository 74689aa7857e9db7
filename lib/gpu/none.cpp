// This room in a build without CUDA.
#include "base/error.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/ipc.hpp"
#include "gpu/pinned_memory.hpp"
#include "gpu/reserved_memory.hpp"

namespace vime::gpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::refused, "this vime was built without CUDA",
              "configure with -DVIME_CUDA=ON on a machine with the CUDA toolkit and NCCL");
}

}  // namespace

bool built() {
  return false;
}
int select_device(const std::string&) {
  refuse();
}
int device_count() {
  return 0;
}
std::string device_uuid(int) {
  refuse();
}
MemoryInfo memory_info() {
  refuse();
}
void synchronize() {
  refuse();
}

DeviceMemory::DeviceMemory(uint64_t bytes) : bytes_(bytes) {
  refuse();
}
DeviceMemory::~DeviceMemory() = default;
std::string DeviceMemory::handle() const {
  refuse();
}

IpcMapping::IpcMapping(const std::string&) {
  refuse();
}
IpcMapping::~IpcMapping() = default;

ReservedMemory::ReservedMemory(uint64_t) {
  refuse();
}
ReservedMemory::~ReservedMemory() = default;
void ReservedMemory::commit() {
  refuse();
}
void ReservedMemory::release() {
  refuse();
}

PinnedMemory::PinnedMemory(uint64_t) {
  refuse();
}
PinnedMemory::~PinnedMemory() = default;
void copy_memory(void*, const void*, uint64_t) {
  refuse();
}

}  // namespace vime::gpu
