#include "gpu/ipc.hpp"

#include <vector>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/strings.hpp"
#include "gpu/check.hpp"

namespace vime::gpu {

IpcMapping::IpcMapping(const std::string& handle) {
  const std::vector<std::string> parts = split(handle, ':');
  cudaIpcMemHandle_t raw{};
  if (parts.size() != 4 || parts[0] != "cuda" || parts[1].empty() || parts[1].size() > 18 ||
      parts[1].find_first_not_of("0123456789") != std::string::npos ||
      !parse_hex(parts[3], raw.reserved, sizeof raw.reserved)) {
    throw Error(ErrorKind::refused,
                "weight handle \"" + handle + "\": expected cuda:<bytes>:<nonce>:<128 hexadecimal digits>");
  }
  bytes_ = std::stoull(parts[1]);
  void* memory = nullptr;
  check(cudaIpcOpenMemHandle(&memory, raw, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle of a weight handle");
  data_ = static_cast<std::byte*>(memory);
}

IpcMapping::~IpcMapping() {
  VIME_CUDA_WARN(cudaIpcCloseMemHandle(data_));
}

}  // namespace vime::gpu
