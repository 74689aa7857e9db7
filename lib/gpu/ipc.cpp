#include "gpu/ipc.hpp"

#include <vector>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "gpu/check.hpp"

namespace vime::gpu {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool parse_hex(const std::string& text, char* bytes, size_t count) {
  if (text.size() != 2 * count) return false;
  for (size_t i = 0; i < count; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<char>(high * 16 + low);
  }
  return true;
}

}  // namespace

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
