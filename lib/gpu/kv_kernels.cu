#include "gpu/kv_kernels.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "gpu/check.hpp"

namespace vime::gpu {
namespace {

constexpr int kWarp = 32;
constexpr int kWarpsPerBlock = 4;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLargestHeadDim = 256;
// Keys of a chunk: short ones spread a few long sequences over the GPU, many make the partial results large.
constexpr int64_t kShortestChunk = 128;
constexpr int64_t kMostChunks = 32;

int64_t chunk_keys(int64_t positions) {
  const int64_t keys = std::max(kShortestChunk, (positions + kMostChunks - 1) / kMostChunks);
  return (keys + 63) / 64 * 64;
}

int64_t chunk_count(int64_t positions) {
  return (positions + chunk_keys(positions) - 1) / chunk_keys(positions);
}

template <typename Unit>
__global__ void store_rows(const Unit* k, int64_t k_stride, const Unit* v, int64_t v_stride, Unit* keys, Unit* values,
                           const int32_t* slots, const int32_t* lengths, int64_t positions, int64_t units) {
  const int64_t row = blockIdx.x;
  if (slots[row] < 0) return;
  const int64_t to = (slots[row] * positions + lengths[row] - 1) * units;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) {
    keys[to + i] = k[row * k_stride + i];
    values[to + i] = v[row * v_stride + i];
  }
}

__device__ float2 widen(__nv_bfloat162 pair) {
  return __bfloat1622float2(pair);
}
__device__ float2 widen(__half2 pair) {
  return __half22float2(pair);
}
__device__ void narrow(float value, __nv_bfloat16* out) {
  *out = __float2bfloat16(value);
}
__device__ void narrow(float value, __half* out) {
  *out = __float2half(value);
}
__device__ void narrow(float value, float* out) {
  *out = value;
}
__device__ float widen_one(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ float widen_one(__half value) {
  return __half2float(value);
}
__device__ float widen_one(float value) {
  return value;
}

template <typename T>
struct Pair;
template <>
struct Pair<__nv_bfloat16> {
  using type = __nv_bfloat162;
};
template <>
struct Pair<__half> {
  using type = __half2;
};

// Eight elements of 16 bits, as one load brings them.
template <typename T>
__device__ void widen_eight(const uint4& packed, float* out) {
  const auto* pairs = reinterpret_cast<const typename Pair<T>::type*>(&packed);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = widen(pairs[i]);
    out[2 * i] = two.x;
    out[2 * i + 1] = two.y;
  }
}

// Partial results of a row's head over one chunk: the largest score, the sum of weights, and the weighted values.
struct Partials {
  float* values;  // [rows, heads, chunks, head_dim]
  float2* sums;   // [rows, heads, chunks]: largest, sum
};

__device__ Partials partials_in(void* workspace, int64_t rows, int64_t heads, int64_t chunks, int64_t head_dim) {
  auto* const values = static_cast<float*>(workspace);
  return {values, reinterpret_cast<float2*>(values + rows * heads * chunks * head_dim)};
}

// A warp takes one chunk of one row for kHeads query heads of one key/value head. kDim / 8 lanes share a key, so that
// a warp reads 32 / (kDim / 8) keys at a time and kUnroll times as many before it computes. The groups of lanes keep
// running softmax sums of their own, which meet at the end. Scores are in units of log 2.
template <typename T, int kDim, int kHeads, int kUnroll>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarp)
    attend_chunks(const T* __restrict__ q, const T* __restrict__ keys, const T* __restrict__ values, T* out,
                  void* workspace, const int32_t* slots, const int32_t* lengths, int rows, int heads, int kv_heads,
                  int64_t positions, int chunk, int chunks, float scale) {
  constexpr int kLanes = kDim / 8;
  constexpr int kKeys = kWarp / kLanes;
  const int groups = heads / kHeads;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  const int group = static_cast<int>(warp % groups);
  const int index = static_cast<int>(warp / groups % chunks);
  const int row = static_cast<int>(warp / groups / chunks);
  if (row >= rows) return;
  const int length = lengths[row];
  const int begin = index * chunk;
  const int lane = threadIdx.x % kWarp;
  const int part = lane % kLanes;
  const int own = lane / kLanes;
  const int first_head = group * kHeads;
  if (begin >= length) {
    if (length > 0 || index > 0 || own > 0) return;
    for (int h = 0; h < kHeads; ++h) {
      const uint4 zeros = {0, 0, 0, 0};
      *reinterpret_cast<uint4*>(out + (static_cast<int64_t>(row) * heads + first_head + h) * kDim + part * 8) = zeros;
    }
    return;
  }
  const int end = min(begin + chunk, length);

  float query[kHeads][8];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const T* const from = q + (static_cast<int64_t>(row) * heads + first_head + h) * kDim + part * 8;
    widen_eight<T>(*reinterpret_cast<const uint4*>(from), query[h]);
#pragma unroll
    for (int i = 0; i < 8; ++i) query[h][i] *= scale;
  }
  float largest[kHeads], sum[kHeads], weighted[kHeads][8];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    largest[h] = -INFINITY;
    sum[h] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) weighted[h][i] = 0;
  }

  const int64_t stride = static_cast<int64_t>(kv_heads) * kDim;
  const int kv_head = first_head / (heads / kv_heads);
  const int64_t base = slots[row] * positions * stride + kv_head * kDim + part * 8;
  for (int at = begin; at < end; at += kUnroll * kKeys) {
    uint4 key[kUnroll], value[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int position = min(at + u * kKeys + own, end - 1);
      key[u] = __ldcs(reinterpret_cast<const uint4*>(keys + base + position * stride));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int position = min(at + u * kKeys + own, end - 1);
      value[u] = __ldcs(reinterpret_cast<const uint4*>(values + base + position * stride));
    }
    float score[kHeads][kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float wide[8];
      widen_eight<T>(key[u], wide);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) dot = fmaf(query[h][i], wide[i], dot);
        score[h][u] = dot;
      }
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) score[h][u] += __shfl_xor_sync(kAllLanes, score[h][u], offset);
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float top = largest[h];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (at + u * kKeys + own >= end) score[h][u] = -INFINITY;
        top = fmaxf(top, score[h][u]);
      }
      const float reference = top == -INFINITY ? 0.0f : top;
      const float correction = exp2f(largest[h] - reference);
      largest[h] = top;
      sum[h] *= correction;
#pragma unroll
      for (int i = 0; i < 8; ++i) weighted[h][i] *= correction;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        score[h][u] = exp2f(score[h][u] - reference);
        sum[h] += score[h][u];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float wide[8];
      widen_eight<T>(value[u], wide);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int i = 0; i < 8; ++i) weighted[h][i] = fmaf(score[h][u], wide[i], weighted[h][i]);
      }
    }
  }

#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, largest[h], offset);
      const float top = fmaxf(largest[h], other);  // at least one group of lanes had a key
      const float reference = top == -INFINITY ? 0.0f : top;
      const float mine = exp2f(largest[h] - reference), theirs = exp2f(other - reference);
      sum[h] = sum[h] * mine + __shfl_xor_sync(kAllLanes, sum[h], offset) * theirs;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        weighted[h][i] = weighted[h][i] * mine + __shfl_xor_sync(kAllLanes, weighted[h][i], offset) * theirs;
      }
      largest[h] = top;
    }
    if (own > 0) continue;
    const int64_t place = static_cast<int64_t>(row) * heads + first_head + h;
    if (length <= chunk) {
      alignas(16) T packed[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) narrow(weighted[h][i] / sum[h], packed + i);
      *reinterpret_cast<uint4*>(out + place * kDim + part * 8) = *reinterpret_cast<const uint4*>(packed);
      continue;
    }
    const Partials partials = partials_in(workspace, rows, heads, chunks, kDim);
    if (part == 0) partials.sums[place * chunks + index] = {largest[h], sum[h]};
    auto* const to = reinterpret_cast<float4*>(partials.values + (place * chunks + index) * kDim + part * 8);
    to[0] = {weighted[h][0], weighted[h][1], weighted[h][2], weighted[h][3]};
    to[1] = {weighted[h][4], weighted[h][5], weighted[h][6], weighted[h][7]};
  }
}

// A block of head_dim threads for each head of each row.
template <typename T>
__global__ void join_chunks(T* out, void* workspace, const int32_t* lengths, int rows, int heads, int chunk,
                            int chunks) {
  const int row = blockIdx.x / heads;
  const int length = lengths[row];
  if (length <= chunk) return;
  const int used = (length + chunk - 1) / chunk;
  const int64_t place = blockIdx.x;
  const Partials partials = partials_in(workspace, rows, heads, chunks, blockDim.x);
  const float2* const sums = partials.sums + place * chunks;
  float largest = -INFINITY;
  for (int i = 0; i < used; ++i) largest = fmaxf(largest, sums[i].x);
  float total = 0, value = 0;
  for (int i = 0; i < used; ++i) {
    const float weight = exp2f(sums[i].x - largest);
    total = fmaf(weight, sums[i].y, total);
    value = fmaf(weight, partials.values[(place * chunks + i) * blockDim.x + threadIdx.x], value);
  }
  narrow(value / total, out + place * blockDim.x + threadIdx.x);
}

// Any type and head_dim: a warp for each head of each row, key by key.
template <typename T>
__global__ void attend_slowly(const T* q, const T* keys, const T* values, T* out, const int32_t* slots,
                              const int32_t* lengths, int64_t rows, int heads, int kv_heads, int64_t positions,
                              int head_dim, float scale) {
  constexpr int kMost = kLargestHeadDim / kWarp;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (place >= rows * heads) return;
  const int64_t row = place / heads;
  const int head = static_cast<int>(place % heads);
  const int lane = threadIdx.x % kWarp;
  const int length = lengths[row];
  const int64_t stride = static_cast<int64_t>(kv_heads) * head_dim;
  const int64_t base = (length == 0 ? 0 : slots[row] * positions * stride) +
                       (head / (heads / kv_heads)) * static_cast<int64_t>(head_dim);
  float query[kMost], weighted[kMost];
  for (int i = 0; i < kMost; ++i) {
    const int d = lane + i * kWarp;
    query[i] = d < head_dim ? widen_one(q[place * head_dim + d]) * scale : 0.0f;
    weighted[i] = 0;
  }
  float largest = -INFINITY, sum = 0;
  for (int position = 0; position < length; ++position) {
    const int64_t at = base + position * stride;
    float score = 0;
    for (int i = 0; i < kMost; ++i) {
      const int d = lane + i * kWarp;
      if (d < head_dim) score = fmaf(query[i], widen_one(keys[at + d]), score);
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(kAllLanes, score, offset);
    const float top = fmaxf(largest, score);
    const float correction = exp2f(largest - top), weight = exp2f(score - top);
    largest = top;
    sum = sum * correction + weight;
    for (int i = 0; i < kMost; ++i) {
      const int d = lane + i * kWarp;
      if (d < head_dim) weighted[i] = fmaf(weight, widen_one(values[at + d]), weighted[i] * correction);
    }
  }
  for (int i = 0; i < kMost; ++i) {
    const int d = lane + i * kWarp;
    if (d < head_dim) narrow(length == 0 ? 0.0f : weighted[i] / sum, out + place * head_dim + d);
  }
}

struct Call {
  const void* q;
  const void* keys;
  const void* values;
  void* out;
  void* workspace;
  KvRows rows;
  int heads;
  KvShape shape;
  float scale;  // with log2(e)
  Stream stream;
};

unsigned blocks_for(int64_t warps) {
  return static_cast<unsigned>((warps + kWarpsPerBlock - 1) / kWarpsPerBlock);
}

template <typename T, int kDim, int kHeads>
void attend_fast(const Call& call) {
  constexpr int kUnroll = kHeads > 2 ? 2 : 4;
  const auto chunk = static_cast<int>(chunk_keys(call.shape.positions));
  const auto chunks = static_cast<int>(chunk_count(call.shape.positions));
  const auto rows = static_cast<int>(call.rows.count);
  const int64_t warps = call.rows.count * chunks * (call.heads / kHeads);
  attend_chunks<T, kDim, kHeads, kUnroll><<<blocks_for(warps), kWarpsPerBlock * kWarp, 0, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.keys), static_cast<const T*>(call.values),
      static_cast<T*>(call.out), call.workspace, call.rows.slots, call.rows.lengths, rows, call.heads,
      static_cast<int>(call.shape.kv_heads), call.shape.positions, chunk, chunks, call.scale);
  VIME_CUDA(cudaGetLastError());
  if (chunks == 1) return;
  join_chunks<T><<<static_cast<unsigned>(rows * call.heads), kDim, 0, call.stream>>>(
      static_cast<T*>(call.out), call.workspace, call.rows.lengths, rows, call.heads, chunk, chunks);
  VIME_CUDA(cudaGetLastError());
}

template <typename T, int kDim>
void attend_with_dim(const Call& call) {
  const int64_t group = call.heads / call.shape.kv_heads;
  if (group % 4 == 0) return attend_fast<T, kDim, 4>(call);
  if (group % 2 == 0) return attend_fast<T, kDim, 2>(call);
  attend_fast<T, kDim, 1>(call);
}

template <typename T>
void attend_any(const Call& call) {
  attend_slowly<T><<<blocks_for(call.rows.count * call.heads), kWarpsPerBlock * kWarp, 0, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.keys), static_cast<const T*>(call.values),
      static_cast<T*>(call.out), call.rows.slots, call.rows.lengths, call.rows.count, call.heads,
      static_cast<int>(call.shape.kv_heads), call.shape.positions, static_cast<int>(call.shape.head_dim), call.scale);
  VIME_CUDA(cudaGetLastError());
}

template <typename T>
void attend_half(const Call& call) {
  if (call.shape.head_dim == 64) return attend_with_dim<T, 64>(call);
  if (call.shape.head_dim == 128) return attend_with_dim<T, 128>(call);
  attend_any<T>(call);
}

}  // namespace

void store_kv(const void* k, int64_t k_stride, const void* v, int64_t v_stride, void* keys, void* values,
              const KvRows& rows, const KvShape& shape, KvType type, Stream stream) {
  if (rows.count == 0) return;
  const int64_t element = type == KvType::f32 ? 4 : 2;
  const int64_t bytes = shape.kv_heads * shape.head_dim * element;
  const auto launch = [&](auto unit) {
    using Unit = decltype(unit);
    const auto in_units = [](int64_t count) { return count / static_cast<int64_t>(sizeof(Unit)); };
    const int64_t units = in_units(bytes);
    const auto threads = static_cast<unsigned>(std::clamp<int64_t>((units + 31) / 32 * 32, 32, 256));
    store_rows<Unit><<<static_cast<unsigned>(rows.count), threads, 0, stream>>>(
        static_cast<const Unit*>(k), in_units(k_stride * element), static_cast<const Unit*>(v),
        in_units(v_stride * element), static_cast<Unit*>(keys), static_cast<Unit*>(values), rows.slots, rows.lengths,
        shape.positions, units);
  };
  const auto places = reinterpret_cast<uintptr_t>(k) | reinterpret_cast<uintptr_t>(v) |
                      static_cast<uintptr_t>(bytes | k_stride * element | v_stride * element);
  if (places % 16 == 0) {
    launch(uint4{});
  } else {
    launch(uint16_t{});
  }
  VIME_CUDA(cudaGetLastError());
}

uint64_t attend_workspace_bytes(int64_t rows, int64_t heads, const KvShape& shape) {
  const int64_t chunks = chunk_count(shape.positions);
  return static_cast<uint64_t>(rows * heads * chunks) *
         (sizeof(float2) + static_cast<uint64_t>(shape.head_dim) * sizeof(float));
}

void attend_rows(const void* q, const void* keys, const void* values, void* out, void* workspace, const KvRows& rows,
                 int64_t heads, const KvShape& shape, KvType type, Stream stream) {
  if (rows.count == 0) return;
  VIME_CHECK(shape.head_dim <= kLargestHeadDim && heads % shape.kv_heads == 0,
             "attention over " + std::to_string(heads) + " heads of " + std::to_string(shape.head_dim));
  const auto scale = static_cast<float>(M_LOG2E / std::sqrt(static_cast<double>(shape.head_dim)));
  const Call call{q, keys, values, out, workspace, rows, static_cast<int>(heads), shape, scale, stream};
  switch (type) {
    case KvType::bf16:
      return attend_half<__nv_bfloat16>(call);
    case KvType::f16:
      return attend_half<__half>(call);
    case KvType::f32:
      return attend_any<float>(call);
  }
}

}  // namespace vime::gpu
