// What the kernels that draw tokens share: logits as numbers that can be ranked, sums over a block in a fixed order,
// and the walk over a row's ids to the one where the cumulative distribution passes a target.
#pragma once

#include <cuda_bf16.h>

#include <climits>
#include <cmath>
#include <cstdint>

#include "gpu/sampling_kernels.hpp"

namespace vime::gpu::draws {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kChunk = 4096;  // ids that are looked at together
constexpr int kRowThreads = 512;
constexpr int kWalked = kChunk / kRowThreads;  // ids of a thread that walks over a chunk

// Unsigned numbers in the order of the floats, with one key for both zeros.
__device__ inline uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float value_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// A logit and its id as one number: the larger logit is the larger number, the lower id among equals.
using Ranked = unsigned long long;
__device__ inline Ranked ranked(float logit, int32_t id) {
  return static_cast<Ranked>(key_of(logit)) << 32 | static_cast<uint32_t>(~id);
}
__device__ inline float logit_of(Ranked one) {
  return value_of(static_cast<uint32_t>(one >> 32));
}
__device__ inline int32_t id_of(Ranked one) {
  return static_cast<int32_t>(~static_cast<uint32_t>(one));
}

constexpr Ranked kNone = 0;  // less than every finite logit

template <typename T>
struct Larger {
  __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};
struct Smaller {
  __device__ int32_t operator()(int32_t a, int32_t b) const { return min(a, b); }
};
template <typename T>
struct Plus {
  __device__ T operator()(T a, T b) const { return a + b; }
};

// Over the whole block of kThreads, in a fixed order; every thread gets the result.
template <int kThreads, typename T, typename Join>
__device__ T block_reduce(T value, Join join) {
  __shared__ T parts[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = join(value, __shfl_down_sync(kAllLanes, value, offset));
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = parts[0];
  for (int i = 1; i < kThreads / kWarp; ++i) result = join(result, parts[i]);
  __syncthreads();
  return result;
}

// The sum over the threads before this one; `total` of all.
template <typename T>
__device__ T block_prefix(T value, T* total) {
  __shared__ T parts[kRowThreads / kWarp];
  const int lane = threadIdx.x % kWarp;
  T inclusive = value;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T other = __shfl_up_sync(kAllLanes, inclusive, offset);
    if (lane >= offset) inclusive += other;
  }
  if (lane == kWarp - 1) parts[threadIdx.x / kWarp] = inclusive;
  __syncthreads();
  T before = 0, all = 0;
  for (int i = 0; i < kRowThreads / kWarp; ++i) {
    if (i == static_cast<int>(threadIdx.x / kWarp)) before = all;
    all += parts[i];
  }
  __syncthreads();
  *total = all;
  return before + inclusive - value;
}

__device__ inline double weight_of(float logit, float largest, double inverse) {
  return exp((static_cast<double>(logit) - static_cast<double>(largest)) * inverse);
}

// A row with its temperature, seen by a block of kRowThreads.
template <typename T>
struct Row {
  const T* logits;
  int vocab;
  const uint32_t* banned;  // bits, or null
  float largest;           // of the ids that are not banned
  double inverse;

  __device__ bool is_open(int id) const { return banned == nullptr || (banned[id / 32] >> (id % 32) & 1u) == 0; }
  __device__ float logit(int id) const { return widen(logits[id]); }
  __device__ double weight(float logit) const { return weight_of(logit, largest, inverse); }
};

// What stays: keys above `least`, and of those equal to it the first `ties` in id order.
struct Kept {
  uint32_t least = 0;
  int32_t ties = INT_MAX;
};

struct Walk {
  double total = 0;
  int32_t token = -1;  // where the cumulative distribution passes the target, or the last token with a weight
  int32_t ties = 0;
};

// Adds to `walk` the ids of the chunk at `begin`, some for each thread, in id order. True when the target was passed.
template <typename T>
__device__ bool walk_chunk(const Row<T>& row, const Kept& kept, int begin, double target, Walk& walk) {
  __shared__ int32_t passed, last;
  if (threadIdx.x == 0) {
    passed = INT_MAX;
    last = -1;
  }
  const int first = begin + kWalked * static_cast<int>(threadIdx.x);
  double weights[kWalked] = {};
  double sum = 0;
  int32_t tied = 0;
  bool tie[kWalked] = {};
  for (int i = 0; i < kWalked && first + i < row.vocab; ++i) {
    const float logit = row.logit(first + i);
    const uint32_t key = key_of(logit);
    if (key < kept.least || !row.is_open(first + i)) continue;
    tie[i] = key == kept.least;
    tied += tie[i] ? 1 : 0;
    weights[i] = row.weight(logit);
  }
  if (kept.ties < INT_MAX) {
    int32_t all = 0;
    int32_t before = walk.ties + block_prefix(tied, &all);
    for (int i = 0; i < kWalked; ++i) {
      if (tie[i] && before++ >= kept.ties) weights[i] = 0;
    }
    walk.ties += all;
  }
  for (const double weight : weights) sum += weight;
  double all = 0;
  double mass = walk.total + block_prefix(sum, &all);
  for (int i = 0; i < kWalked; ++i) {
    if (weights[i] <= 0) continue;
    mass += weights[i];
    atomicMax(&last, first + i);
    if (mass <= target) continue;
    atomicMin(&passed, first + i);
    break;
  }
  __syncthreads();
  walk.total += all;
  const bool done = passed < INT_MAX;
  if (done || last >= 0) walk.token = done ? passed : last;
  __syncthreads();
  return done;
}

}  // namespace vime::gpu::draws
