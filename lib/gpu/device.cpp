#include "gpu/device.hpp"

#include <cstring>

#include <vector>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "devices/devices.hpp"
#include "gpu/check.hpp"

namespace vime::gpu {

bool built() {
  return true;
}

int device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return 0;
  }
  check(result, "cudaGetDeviceCount(&count)");
  return count;
}

std::string device_uuid(int ordinal) {
  cudaDeviceProp properties{};
  VIME_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  unsigned char bytes[sizeof properties.uuid.bytes];
  std::memcpy(bytes, properties.uuid.bytes, sizeof bytes);
  return devices::format_uuid(bytes);
}

int select_device(const std::string& uuid) {
  // Asked once: a device's properties take long to get, and none comes or goes while a process lives.
  static const std::vector<std::string> seen = [] {
    std::vector<std::string> uuids;
    for (int ordinal = 0; ordinal < device_count(); ++ordinal) uuids.push_back(device_uuid(ordinal));
    return uuids;
  }();
  for (std::size_t ordinal = 0; ordinal < seen.size(); ++ordinal) {
    if (seen[ordinal] != uuid) continue;
    VIME_CUDA(cudaSetDevice(static_cast<int>(ordinal)));
    return static_cast<int>(ordinal);
  }
  throw Error(ErrorKind::refused,
              "no GPU has the UUID " + uuid + "; CUDA sees " + (seen.empty() ? std::string("none") : join(seen, ", ")));
}

MemoryInfo memory_info() {
  size_t free_bytes = 0, total_bytes = 0;
  VIME_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return {free_bytes, total_bytes};
}

void synchronize() {
  VIME_CUDA(cudaDeviceSynchronize());
}

}  // namespace vime::gpu
