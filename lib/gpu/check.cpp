#include "gpu/check.hpp"

#include <string>

#include "base/error.hpp"
#include "base/log.hpp"

namespace vime::gpu {
namespace {

std::string sentence(cudaError_t result, const char* call) {
  int device = -1;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  return std::string(call) + " on " + (known ? "GPU " + std::to_string(device) : "a GPU") + ": " +
         cudaGetErrorString(result) + " (" + cudaGetErrorName(result) + ")";
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  const std::string text = sentence(result, call);
  cudaGetLastError();  // an error that does not stay, like a failed allocation, is told once
  throw Error(result == cudaErrorMemoryAllocation ? ErrorKind::exhausted : ErrorKind::process_failed, text);
}

void warn(cudaError_t result, const char* call) noexcept {
  // At the end of a process the driver may have gone before what it would free.
  if (result == cudaSuccess || result == cudaErrorCudartUnloading) return;
  log::warning("gpu", sentence(result, call));
}

}  // namespace vime::gpu
