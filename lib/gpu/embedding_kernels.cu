#include "gpu/embedding_kernels.hpp"

#include <algorithm>

#include "gpu/check.hpp"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kThreads = 256;

// A block adds up the rows of one id: the one whose first token stands at the block's place. The others have nothing to
// do.
template <bool kAligned>
__global__ void __launch_bounds__(kLargestBlock) add_rows(EmbeddingGradient work) {
  const int64_t begin = blockIdx.x;
  const int64_t id = work.sorted_ids[begin];
  if (id < 0 || (begin > 0 && work.sorted_ids[begin - 1] == id)) return;
  int64_t end = begin + 1;  // of the id's tokens; beyond it every id is larger
  for (int64_t high = work.tokens; end < high;) {
    const int64_t middle = (end + high) / 2;
    if (work.sorted_ids[middle] == id) {
      end = middle + 1;
    } else {
      high = middle;
    }
  }
  float* target = work.table + id * work.width;
  for (int64_t column = int64_t{threadIdx.x} * kPack; column < work.width; column += int64_t{blockDim.x} * kPack) {
    float sums[kPack] = {};
#pragma unroll 8
    for (int64_t i = begin; i < end; ++i) {
      const Pack pack = load_pack<kAligned>(work.rows + work.order[i] * work.width, column, work.width);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[k] += value_of(pack, k);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if (column + k < work.width) target[column + k] += sums[k];
    }
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    narrow(const float* __restrict__ from, Bf16* __restrict__ to, int64_t count) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (begin >= count) return;
  float values[kPack];
  if (kAligned && begin + kPack <= count) {
#pragma unroll
    for (int i = 0; i < kPack; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + begin + i);
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
    *reinterpret_cast<Pack*>(to + begin) = rounded(values);
    return;
  }
  for (int64_t i = begin; i < min(begin + kPack, count); ++i) to[i] = rounded(from[i]);
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    widen(const Bf16* __restrict__ from, float* __restrict__ to, int64_t count) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (begin >= count) return;
  if (kAligned && begin + kPack <= count) {
    const Pack pack = *reinterpret_cast<const Pack*>(from + begin);
#pragma unroll
    for (int i = 0; i < kPack; i += 4) {
      *reinterpret_cast<float4*>(to + begin + i) = {value_of(pack, i), value_of(pack, i + 1), value_of(pack, i + 2),
                                                    value_of(pack, i + 3)};
    }
    return;
  }
  for (int64_t i = begin; i < min(begin + kPack, count); ++i) to[i] = value_of(from[i]);
}

unsigned cast_blocks(int64_t count) {
  return static_cast<unsigned>(divide_up(count, kThreads * kPack));
}

}  // namespace

void add_embedding_gradient(const EmbeddingGradient& gradient, Stream stream) {
  if (gradient.tokens == 0) return;
  const auto blocks = static_cast<unsigned>(gradient.tokens);
  const auto threads = static_cast<unsigned>(
      std::min<int64_t>(divide_up(divide_up(gradient.width, kPack), kWarp) * kWarp, kLargestBlock));
  if (gradient.width % kPack == 0 && aligned(gradient.rows)) {
    add_rows<true><<<blocks, threads, 0, stream>>>(gradient);
  } else {
    add_rows<false><<<blocks, threads, 0, stream>>>(gradient);
  }
  VIME_CUDA(cudaGetLastError());
}

void cast(const float* from, Bf16* to, int64_t count, Stream stream) {
  if (count == 0) return;
  if (aligned(from) && aligned(to)) {
    narrow<true><<<cast_blocks(count), kThreads, 0, stream>>>(from, to, count);
  } else {
    narrow<false><<<cast_blocks(count), kThreads, 0, stream>>>(from, to, count);
  }
  VIME_CUDA(cudaGetLastError());
}

void cast(const Bf16* from, float* to, int64_t count, Stream stream) {
  if (count == 0) return;
  if (aligned(from) && aligned(to)) {
    widen<true><<<cast_blocks(count), kThreads, 0, stream>>>(from, to, count);
  } else {
    widen<false><<<cast_blocks(count), kThreads, 0, stream>>>(from, to, count);
  }
  VIME_CUDA(cudaGetLastError());
}

}  // namespace vime::gpu
