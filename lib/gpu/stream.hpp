// CUDA's stream type without CUDA's headers. nullptr is the default stream.
#pragma once

struct CUstream_st;

namespace vime::gpu {

using Stream = CUstream_st*;  // cudaStream_t

}  // namespace vime::gpu
