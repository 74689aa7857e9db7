#include "gpu/optimizer_kernels.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 4;  // of a thread

// Ranges as a kernel's parameter, of which all together may have 4 KiB. What has more is done in several launches, each
// beginning anew with the last few ranges of the one before: launches begin at multiples of kElements, ranges anywhere.
constexpr int64_t kRanges = 200;
constexpr int64_t kRangesAgain = kElements;
struct RangeTable {
  DecayRange ranges[kRanges];
  int count = 0;
};

// The first range that ends behind the element.
__device__ int range_of(const RangeTable& table, int64_t element) {
  int low = 0;
  int high = table.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (table.ranges[middle].end <= element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

struct Element4 {
  float values[kElements];
};

template <bool kAligned>
__device__ Element4 load(const float* from, int64_t begin, int64_t count) {
  Element4 loaded = {};
  if constexpr (kAligned) {
    if (begin + kElements <= count) {
      const float4 four = *reinterpret_cast<const float4*>(from + begin);
      return {{four.x, four.y, four.z, four.w}};
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) loaded.values[i] = begin + i < count ? from[begin + i] : 0.0f;
  return loaded;
}

template <bool kAligned>
__device__ void store(float* to, int64_t begin, int64_t count, const Element4& stored) {
  if constexpr (kAligned) {
    if (begin + kElements <= count) {
      *reinterpret_cast<float4*>(to + begin) = {stored.values[0], stored.values[1], stored.values[2], stored.values[3]};
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (begin + i < count) to[begin + i] = stored.values[i];
  }
}

template <bool kAligned>
__device__ void store(Bf16* to, int64_t begin, int64_t count, const Element4& stored) {
  if constexpr (kAligned) {
    if (begin + kElements <= count) {
      *reinterpret_cast<uint2*>(to + begin) = {rounded(stored.values[0], stored.values[1]),
                                               rounded(stored.values[2], stored.values[3])};
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (begin + i < count) to[begin + i] = rounded(stored.values[i]);
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    adamw_elements(AdamwState state, AdamwStep step, int64_t first, const __grid_constant__ RangeTable table) {
  const int64_t begin = first + (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kElements;
  if (begin >= state.count) return;
  Element4 master = load<kAligned>(state.master, begin, state.count);
  Element4 exp_avg = load<kAligned>(state.exp_avg, begin, state.count);
  Element4 exp_avg_sq = load<kAligned>(state.exp_avg_sq, begin, state.count);
  const Element4 gradient = load<kAligned>(state.gradient, begin, state.count);
  int range = table.count == 0 ? -1 : range_of(table, begin);
  const float root = 1.0f / sqrtf(step.correction2);
  const float rate = step.lr / step.correction1;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const float g = gradient.values[i] * step.gradient_scale;
    exp_avg.values[i] = step.beta1 * exp_avg.values[i] + (1.0f - step.beta1) * g;
    exp_avg_sq.values[i] = step.beta2 * exp_avg_sq.values[i] + (1.0f - step.beta2) * g * g;
    if (range >= 0) {
      while (begin + i < state.count && begin + i >= table.ranges[range].end) ++range;
      master.values[i] *= 1.0f - step.lr * table.ranges[range].decay;
    }
    master.values[i] -= rate * exp_avg.values[i] / (sqrtf(exp_avg_sq.values[i]) * root + step.eps);
  }
  store<kAligned>(state.master, begin, state.count, master);
  store<kAligned>(state.exp_avg, begin, state.count, exp_avg);
  store<kAligned>(state.exp_avg_sq, begin, state.count, exp_avg_sq);
  if (state.weight != nullptr) store<kAligned>(state.weight, begin, state.count, master);
}

// Threads take every kSquareSums * kThreads-th group of four; the sums meet in the order of the threads.
__device__ void leave_sum(double sum, double* to) {
  __shared__ double threads[kThreads];
  threads[threadIdx.x] = sum;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (static_cast<int>(threadIdx.x) < step) threads[threadIdx.x] += threads[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) *to = threads[0];
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) square_sums(const float* values, int64_t count, double* sums) {
  constexpr int64_t kStride = kSquareSums * kThreads * kElements;
  double sum = 0;
#pragma unroll 4
  for (int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kElements; begin < count; begin += kStride) {
    const Element4 loaded = load<kAligned>(values, begin, count);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const double value = loaded.values[i];
      sum += value * value;
    }
  }
  leave_sum(sum, sums + blockIdx.x);
}

__global__ void __launch_bounds__(kThreads) add_sums(const double* sums, double* result) {
  __shared__ double whole;
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kSquareSums; i += kThreads) sum += sums[i];
  leave_sum(sum, &whole);
  if (threadIdx.x == 0) *result += whole;
}

}  // namespace

void adamw(const AdamwState& state, const AdamwStep& step, const DecayRange* ranges, int64_t range_count,
           Stream stream) {
  VIME_CHECK(range_count == 0 || ranges[range_count - 1].end >= state.count, "every element has a decay");
  const bool packs = aligned(state.master) && aligned(state.exp_avg) && aligned(state.exp_avg_sq) &&
                     aligned(state.gradient) && aligned(state.weight);
  int64_t begin = 0;
  for (int64_t range = 0; begin < state.count; range += kRanges - kRangesAgain) {
    RangeTable table;
    table.count = static_cast<int>(std::min(kRanges, range_count - range));
    std::copy_n(ranges + range, table.count, table.ranges);
    const bool last = range + kRanges >= range_count;
    AdamwState part = state;
    if (!last) part.count = std::min(state.count, table.ranges[table.count - 1].end / kElements * kElements);
    const auto blocks = static_cast<unsigned>(divide_up(part.count - begin, kThreads * kElements));
    if (blocks > 0 && packs) {
      adamw_elements<true><<<blocks, kThreads, 0, stream>>>(part, step, begin, table);
    } else if (blocks > 0) {
      adamw_elements<false><<<blocks, kThreads, 0, stream>>>(part, step, begin, table);
    }
    VIME_CUDA(cudaGetLastError());
    begin = part.count;
  }
}

void add_sum_of_squares(const float* values, int64_t count, double* workspace, double* result, Stream stream) {
  if (aligned(values)) {
    square_sums<true><<<kSquareSums, kThreads, 0, stream>>>(values, count, workspace);
  } else {
    square_sums<false><<<kSquareSums, kThreads, 0, stream>>>(values, count, workspace);
  }
  VIME_CUDA(cudaGetLastError());
  add_sums<<<1, kThreads, 0, stream>>>(workspace, result);
  VIME_CUDA(cudaGetLastError());
}

}  // namespace vime::gpu
