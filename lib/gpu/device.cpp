#include "gpu/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "devices/devices.hpp"
#include "devices/gpu_share.hpp"
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

namespace {

thread_local int selected_of = 1;  // GpuShare::of, beside CUDA's own current device, which is the thread's too

// Asked once: a device's properties take long to get, and none comes or goes while a process lives.
const std::vector<std::string>& seen_uuids() {
  static const std::vector<std::string> seen = [] {
    std::vector<std::string> uuids;
    for (int ordinal = 0; ordinal < device_count(); ++ordinal) uuids.push_back(device_uuid(ordinal));
    return uuids;
  }();
  return seen;
}

std::optional<int> ordinal_of(const std::string& uuid) {
  const std::vector<std::string>& seen = seen_uuids();
  const auto found = std::find(seen.begin(), seen.end(), devices::share_of(uuid).gpu);
  if (found == seen.end()) return std::nullopt;
  return static_cast<int>(found - seen.begin());
}

// NCCL takes two ranks of a host on one GPU for a mistake; those that give themselves different hosts exchange over
// sockets, here those of the loopback. It asks once in a process's life. But for the host's name, values that the user
// has set stay.
void be_a_host_of_its_own(const std::string& uuid) {
  ::setenv("NCCL_HOSTID", uuid.c_str(), 1);
  ::setenv("NCCL_NET", "Socket", 0);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  ::setenv("NCCL_MNNVL_ENABLE", "0", 0);  // it would take the ranks for those of one machine again
}

}  // namespace

int select_device(const std::string& uuid) {
  const std::optional<int> ordinal = ordinal_of(uuid);
  if (!ordinal) {
    const std::vector<std::string>& seen = seen_uuids();
    throw Error(ErrorKind::refused, "no GPU has the UUID " + uuid + "; CUDA sees " +
                                        (seen.empty() ? std::string("none") : join(seen, ", ")));
  }
  VIME_CUDA(cudaSetDevice(*ordinal));
  selected_of = devices::share_of(uuid).of;
  if (selected_of > 1) be_a_host_of_its_own(uuid);
  return *ordinal;
}

int devices_on_gpu() {
  return selected_of;
}

bool reaches(const std::string& uuid) {
  const std::optional<int> ordinal = ordinal_of(uuid);
  int own = 0, can = 0;
  VIME_CUDA(cudaGetDevice(&own));
  if (!ordinal || *ordinal == own) return ordinal.has_value();
  VIME_CUDA(cudaDeviceCanAccessPeer(&can, own, *ordinal));
  return can != 0;
}

void read_from(const std::string& uuid) {
  const std::optional<int> ordinal = ordinal_of(uuid);
  VIME_CHECK(ordinal.has_value(), "no GPU has the UUID " + uuid);
  int own = 0;
  VIME_CUDA(cudaGetDevice(&own));
  if (*ordinal == own) return;
  const cudaError_t result = cudaDeviceEnablePeerAccess(*ordinal, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  check(result, "cudaDeviceEnablePeerAccess");
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
