// How sources of this room look at the results of CUDA calls. Not for other rooms.
#pragma once

#include <cuda_runtime_api.h>

namespace vime::gpu {

// Error{exhausted} for memory, Error{process_failed} otherwise, with the call's text, CUDA's reason and the device.
void check(cudaError_t result, const char* call);
// For destructors: the same as a warning in the log.
void warn(cudaError_t result, const char* call) noexcept;

}  // namespace vime::gpu

#define VIME_CUDA(call) ::vime::gpu::check((call), #call)
#define VIME_CUDA_WARN(call) ::vime::gpu::warn((call), #call)
