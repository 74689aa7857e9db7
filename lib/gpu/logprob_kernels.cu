// A block takes a row. Logits are compared and subtracted as they were stored and only the difference is scaled, so
// that large logits cost no precision.
#include "gpu/logprob_kernels.hpp"

#include <cmath>

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;  // packs under way per thread
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;

__device__ float power_of_two(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

// 16 bytes of a row as float32.
template <class T>
struct Values;

template <>
struct Values<Bf16> {
  static constexpr int kCount = 8;
  Pack pack;
  __device__ float at(int i) const { return value_of(pack, i); }
  __device__ void set(const float (&values)[kCount]) { pack = rounded(values); }
  static __device__ float widen(Bf16 value) { return value_of(value); }
  static __device__ Bf16 narrow(float value) { return rounded(value); }
};

template <>
struct Values<float> {
  static constexpr int kCount = 4;
  float4 four;
  __device__ float at(int i) const { return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w; }
  __device__ void set(const float (&values)[kCount]) { four = {values[0], values[1], values[2], values[3]}; }
  static __device__ float widen(float value) { return value; }
  static __device__ float narrow(float value) { return value; }
};

// Columns before the first 16-byte boundary of a row, at most `columns`.
template <class T>
__device__ int64_t head_of(const T* row, int64_t columns) {
  const auto bytes = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(row) % 16) % 16);
  return min(bytes / static_cast<int64_t>(sizeof(T)), columns);
}

// With x = logit - largest, in units of the logits as stored: sum of 2^(x scale), and of 2^(x scale) x.
struct Running {
  float largest, sum, weighted;

  static __device__ Running nothing() { return {-INFINITY, 0.0f, 0.0f}; }
  __device__ void raise(float to, float scale) {
    if (to <= largest) return;
    if (sum > 0) {  // else both are infinite and zero
      const float factor = power_of_two((largest - to) * scale);
      weighted = factor * (weighted + (largest - to) * sum);
      sum *= factor;
    }
    largest = to;
  }
  __device__ void add(float logit, float scale) {
    const float x = logit - largest;
    const float e = power_of_two(x * scale);
    sum += e;
    weighted += e * x;
  }
  __device__ void merge(Running other, float scale) {
    const float to = fmaxf(largest, other.largest);
    raise(to, scale);
    other.raise(to, scale);
    sum += other.sum;
    weighted += other.weighted;
  }
};

__device__ Running over_warp(Running mine, float scale) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    Running other;
    other.largest = __shfl_xor_sync(0xffffffffu, mine.largest, step);
    other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, step);
    other.weighted = __shfl_xor_sync(0xffffffffu, mine.weighted, step);
    mine.merge(other, scale);
  }
  return mine;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 3) parts_of(Logits logits, float* parts) {
  using Vector = Values<T>;
  constexpr int kCount = Vector::kCount;
  const int64_t row = blockIdx.x;
  const T* values = static_cast<const T*>(logits.values) + row * logits.stride;
  const float scale = kLog2E / logits.temperature;
  const int64_t head = head_of(values, logits.columns);
  const auto vectors = static_cast<int>((logits.columns - head) / kCount);
  const auto* body = reinterpret_cast<const Vector*>(values + head);
  Running mine = Running::nothing();
  for (int begin = 0; begin < vectors; begin += kThreads * kUnroll) {
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      loaded[u] = body[min(begin + u * kThreads + static_cast<int>(threadIdx.x), vectors - 1)];
    }
    float largest = -INFINITY;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) largest = fmaxf(largest, loaded[u].at(i));
    }
    mine.raise(largest, scale);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (begin + u * kThreads + static_cast<int>(threadIdx.x) >= vectors) break;
#pragma unroll
      for (int i = 0; i < kCount; ++i) mine.add(loaded[u].at(i), scale);
    }
  }
  // Before and behind the whole vectors there is less than one of them each.
  const int64_t tail = head + static_cast<int64_t>(vectors) * kCount;
  const int64_t single = threadIdx.x < kCount ? threadIdx.x : tail + threadIdx.x - kCount;
  const bool is_head = threadIdx.x < kCount && single < head;
  const bool is_tail = threadIdx.x >= kCount && threadIdx.x < 2 * kCount && single < logits.columns;
  if (is_head || is_tail) {
    const float logit = Vector::widen(values[single]);
    mine.raise(logit, scale);
    mine.add(logit, scale);
  }

  __shared__ Running warps[kThreads / kWarp];
  mine = over_warp(mine, scale);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  mine = over_warp(threadIdx.x < kThreads / kWarp ? warps[threadIdx.x] : Running::nothing(), scale);
  if (threadIdx.x != 0) return;
  const int64_t column = logits.targets[row] - logits.vocab_begin;
  const bool own = column >= 0 && column < logits.columns;
  parts[row] = mine.largest / logits.temperature;
  parts[logits.rows + row] = mine.sum;
  parts[2 * logits.rows + row] = mine.weighted / logits.temperature;
  parts[3 * logits.rows + row] = own ? Vector::widen(values[column]) / logits.temperature : 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    combine(const float* parts, int64_t ranks, int64_t rows, float* logprob, float* entropy, float* log_sum) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= rows) return;
  const auto part = [&](int64_t rank, int64_t which) { return parts[(rank * kLogprobParts + which) * rows + row]; };
  float largest = -INFINITY;
  for (int64_t rank = 0; rank < ranks; ++rank) largest = fmaxf(largest, part(rank, 0));
  float sum = 0, weighted = 0, target = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    target += part(rank, 3);
    if (part(rank, 1) == 0) continue;  // a part without columns
    const float below = part(rank, 0) - largest;
    const float factor = expf(below);
    sum += factor * part(rank, 1);
    weighted += factor * (part(rank, 2) + below * part(rank, 1));
  }
  const float log_of_sum = logf(sum);
  logprob[row] = (target - largest) - log_of_sum;
  entropy[row] = log_of_sum - weighted / sum;
  log_sum[row] = largest + log_of_sum;
}

// What the gradient of each logit of a row takes from the row.
struct RowGradient {
  float scale;    // from logits as stored to powers of two
  float log_sum;  // in powers of two
  float logprob, entropy_weight;
  float entropy;

  // of every logit but the target
  __device__ float of(float logit) const {
    const float log2_p = logit * scale - log_sum;
    return power_of_two(log2_p) * (entropy_weight * (log2_p * kLn2 + entropy) + logprob);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) backward(Logits logits, const float* log_sum, const float* entropy,
                                                     const float* d_logprob, const float* d_entropy) {
  using Vector = Values<T>;
  constexpr int kCount = Vector::kCount;
  const int64_t row = blockIdx.x;
  T* values = static_cast<T*>(logits.values) + row * logits.stride;
  RowGradient gradient;
  gradient.scale = kLog2E / logits.temperature;
  gradient.log_sum = log_sum[row] * kLog2E;
  gradient.logprob = -d_logprob[row] / logits.temperature;
  gradient.entropy_weight = d_entropy == nullptr ? 0.0f : -d_entropy[row] / logits.temperature;
  gradient.entropy = d_entropy == nullptr ? 0.0f : entropy[row];
  const int64_t target = logits.targets[row] - logits.vocab_begin;
  const int64_t head = head_of(values, logits.columns);
  const auto vectors = static_cast<int>((logits.columns - head) / kCount);
  auto* body = reinterpret_cast<Vector*>(values + head);
  const auto target_vector = target < head ? int64_t{-1} : (target - head) / kCount;
  for (int begin = 0; begin < vectors; begin += kThreads * kUnroll) {
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      loaded[u] = body[min(begin + u * kThreads + static_cast<int>(threadIdx.x), vectors - 1)];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int vector = begin + u * kThreads + static_cast<int>(threadIdx.x);
      if (vector >= vectors) break;
      float of[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) of[i] = gradient.of(loaded[u].at(i));
      if (vector == target_vector) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if (i == (target - head) % kCount) of[i] -= gradient.logprob;
        }
      }
      loaded[u].set(of);
      body[vector] = loaded[u];
    }
  }
  const int64_t tail = head + static_cast<int64_t>(vectors) * kCount;
  const int64_t single = threadIdx.x < kCount ? threadIdx.x : tail + threadIdx.x - kCount;
  const bool is_head = threadIdx.x < kCount && single < head;
  const bool is_tail = threadIdx.x >= kCount && threadIdx.x < 2 * kCount && single < logits.columns;
  if (!is_head && !is_tail) return;
  values[single] =
      Vector::narrow(gradient.of(Vector::widen(values[single])) - (single == target ? gradient.logprob : 0.0f));
}

void check_logits(const Logits& logits) {
  VIME_CHECK(logits.stride >= logits.columns && logits.columns < int64_t{1} << 31, "rows of logits overlap");
  VIME_CHECK(logits.temperature > 0, "logits are divided by a temperature above 0");
}

}  // namespace

void logprob_parts(const Logits& logits, float* parts, Stream stream) {
  check_logits(logits);
  if (logits.rows == 0) return;
  const auto blocks = static_cast<unsigned>(logits.rows);
  if (logits.element == Element::bf16) {
    parts_of<Bf16><<<blocks, kThreads, 0, stream>>>(logits, parts);
  } else {
    parts_of<float><<<blocks, kThreads, 0, stream>>>(logits, parts);
  }
  VIME_CUDA(cudaGetLastError());
}

void combine_logprob_parts(const float* parts, int64_t ranks, int64_t rows, float* logprob, float* entropy,
                           float* log_sum, Stream stream) {
  if (rows == 0) return;
  combine<<<static_cast<unsigned>(divide_up(rows, kThreads)), kThreads, 0, stream>>>(parts, ranks, rows, logprob,
                                                                                     entropy, log_sum);
  VIME_CUDA(cudaGetLastError());
}

void logprob_backward(const Logits& logits, const float* log_sum, const float* entropy, const float* d_logprob,
                      const float* d_entropy, Stream stream) {
  check_logits(logits);
  if (logits.rows == 0) return;
  const auto blocks = static_cast<unsigned>(logits.rows);
  if (logits.element == Element::bf16) {
    backward<Bf16><<<blocks, kThreads, 0, stream>>>(logits, log_sum, entropy, d_logprob, d_entropy);
  } else {
    backward<float><<<blocks, kThreads, 0, stream>>>(logits, log_sum, entropy, d_logprob, d_entropy);
  }
  VIME_CUDA(cudaGetLastError());
}

}  // namespace vime::gpu
