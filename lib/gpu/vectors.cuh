// What this room's kernels share: eight bf16 values as one 16-byte access, and sums over lanes, warps and blocks in a
// fixed order. Not for other rooms.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/element.hpp"

namespace vime::gpu {

constexpr int kPack = 8;  // bf16 values in 16 bytes

struct alignas(16) Pack {
  uint32_t pairs[kPack / 2];
};

__device__ inline float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ inline float value_of(const Pack& pack, int i) {
  return i % 2 == 0 ? low_half(pack.pairs[i / 2]) : high_half(pack.pairs[i / 2]);
}
__device__ inline float value_of(Bf16 bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
// To the nearest, ties to even.
__device__ inline Bf16 rounded(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline uint32_t rounded(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return static_cast<uint32_t>(__bfloat16_as_ushort(both.x)) | static_cast<uint32_t>(__bfloat16_as_ushort(both.y))
                                                                   << 16;
}
__device__ inline Pack rounded(const float (&values)[kPack]) {
  Pack pack;
#pragma unroll
  for (int i = 0; i < kPack / 2; ++i) pack.pairs[i] = rounded(values[2 * i], values[2 * i + 1]);
  return pack;
}

// The pack from `column` on of a row of `width` values; what lies behind the row is zero. Aligned: rows begin at
// multiples of 16 bytes and the width is a multiple of kPack.
template <bool kAligned>
__device__ inline Pack load_pack(const Bf16* __restrict__ row, int64_t column, int64_t width) {
  Pack pack = {};
  if constexpr (kAligned) {
    if (column < width) pack = *reinterpret_cast<const Pack*>(row + column);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const uint32_t bits = column + i < width ? row[column + i] : 0;
      pack.pairs[i / 2] |= bits << (i % 2 * 16);
    }
  }
  return pack;
}

template <bool kAligned>
__device__ inline void store_pack(Bf16* __restrict__ row, int64_t column, int64_t width, const Pack& pack) {
  if constexpr (kAligned) {
    if (column < width) *reinterpret_cast<Pack*>(row + column) = pack;
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (column + i < width) row[column + i] = static_cast<Bf16>(pack.pairs[i / 2] >> (i % 2 * 16));
    }
  }
}

// Sum over groups of kLanes neighbouring lanes; every lane gets it.
template <int kLanes>
__device__ inline float sum_over_lanes(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

constexpr int kWarp = 32;
constexpr int kLargestBlock = 1024;

// Sums of kCount values over the block; every thread gets them. `scratch` may be used again for other sums only behind
// another barrier.
template <int kCount>
__device__ inline void sum_over_block(float (&values)[kCount], float (*scratch)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = sum_over_lanes<kWarp>(values[i]);
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) scratch[threadIdx.x / kWarp][i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += scratch[warp][i];
  }
}

inline bool aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(Pack) == 0;  // null too
}

inline int64_t divide_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

}  // namespace vime::gpu
