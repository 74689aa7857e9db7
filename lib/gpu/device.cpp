#include "gpu/device.hpp"

#include <vector>

#include "base/error.hpp"
#include "base/strings.hpp"
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
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
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
