// Two launches. The first looks at each chunk of each row once: its largest logit and its sum of weights. The second
// has a block for each row: without filters it finds the chunk in which the cumulative distribution passes the random
// number, and the token in it; with filters it turns each of them into the least logit that stays, which it finds by
// cutting the range of logits again and again, and walks over the row again. Every sum is taken in an order that
// depends on the vocabulary's size alone.
#include "gpu/sampling_kernels.hpp"

#include <cuda_bf16.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "gpu/check.hpp"

namespace vime::gpu {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kChunk = 4096;
constexpr int kChunkThreads = 256;
constexpr int kPerThread = kChunk / kChunkThreads;
constexpr int kRowThreads = 512;
constexpr int kWalked = kChunk / kRowThreads;  // ids of a thread that walks over a chunk
constexpr int kMostChunks = 512;
constexpr int kCuts = 7;
constexpr double kFar = 20;  // weights of less than exp(-kFar) are together far below most cuts

// Unsigned numbers in the order of the floats, with one key for both zeros.
__device__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ float value_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ float widen(float value) {
  return value;
}
__device__ float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// A logit and its id as one number: the larger logit is the larger number, the lower id among equals.
using Ranked = unsigned long long;
__device__ Ranked ranked(float logit, int32_t id) {
  return static_cast<Ranked>(key_of(logit)) << 32 | static_cast<uint32_t>(~id);
}
__device__ float logit_of(Ranked one) {
  return value_of(static_cast<uint32_t>(one >> 32));
}
__device__ int32_t id_of(Ranked one) {
  return static_cast<int32_t>(~static_cast<uint32_t>(one));
}

constexpr Ranked kNone = 0;  // less than every finite logit

struct Chunk {
  Ranked best;        // of the ids that are not banned; kNone: there is none
  float raw_largest;  // of all ids
  int32_t count;      // logits at least as large as the forced token's
  double sum;         // of exp((logit - largest) / temperature), ids that are not banned
  double raw_sum;     // of exp(logit - raw_largest), all ids
  int32_t bad;        // the lowest id whose logit is not finite, or INT_MAX
  int32_t padding;
};

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

__device__ double inverse_temperature(const SampleRow& sample) {
  return sample.forced < 0 && sample.temperature > 0 ? 1.0 / static_cast<double>(sample.temperature) : 1.0;
}

__device__ double weight_of(float logit, float largest, double inverse) {
  return exp((static_cast<double>(logit) - static_cast<double>(largest)) * inverse);
}

template <typename T>
__global__ void __launch_bounds__(kChunkThreads)
    look_at_chunks(const T* logits, int64_t vocab, const SampleRow* samples, const int32_t* banned, bool raw_logprobs,
                   Chunk* chunks) {
  const int64_t row = blockIdx.y;
  const SampleRow sample = samples[row];
  const T* const from = logits + row * vocab;
  const int begin = static_cast<int>(blockIdx.x) * kChunk;
  const int count = static_cast<int>(min(static_cast<int64_t>(kChunk), vocab - begin));
  const int bans = sample.forced < 0 ? sample.banned_count : 0;
  __shared__ uint32_t mask[kChunk / 32];
  if (bans > 0) {
    for (int i = threadIdx.x; i < kChunk / 32; i += kChunkThreads) mask[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < bans; i += kChunkThreads) {
      const int id = banned[sample.banned_begin + i] - begin;
      if (id >= 0 && id < count) atomicOr(mask + id / 32, 1u << (id % 32));
    }
    __syncthreads();
  }

  float values[kPerThread];
  uint32_t open = 0;  // bit i: the i-th value is there and not banned
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int id = i * kChunkThreads + static_cast<int>(threadIdx.x);
    values[i] = id < count ? widen(from[begin + id]) : -INFINITY;
  }
  Ranked best = kNone;
  float raw_largest = -INFINITY;
  int32_t bad = INT_MAX, at_least = 0;
  const float forced = sample.forced >= 0 ? widen(from[sample.forced]) : INFINITY;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int id = i * kChunkThreads + static_cast<int>(threadIdx.x);
    if (id >= count) continue;
    if (!isfinite(values[i])) bad = min(bad, begin + id);
    raw_largest = fmaxf(raw_largest, values[i]);
    at_least += values[i] >= forced ? 1 : 0;
    if (bans > 0 && (mask[id / 32] >> (id % 32) & 1u) != 0) continue;
    open |= 1u << i;
    best = max(best, ranked(values[i], begin + id));
  }
  best = block_reduce<kChunkThreads>(best, Larger<Ranked>{});
  bad = block_reduce<kChunkThreads>(bad, Smaller{});
  const double inverse = inverse_temperature(sample);
  const float largest = logit_of(best);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if ((open >> i & 1u) != 0) sum += weight_of(values[i], largest, inverse);
  }
  sum = block_reduce<kChunkThreads>(sum, Plus<double>{});
  Chunk found{best, largest, 0, sum, sum, bad, 0};
  if (sample.forced >= 0) found.count = block_reduce<kChunkThreads>(at_least, Plus<int32_t>{});
  // The same for all threads, as is the branch above.
  if (raw_logprobs && (bans > 0 || inverse != 1.0)) {
    found.raw_largest = block_reduce<kChunkThreads>(raw_largest, Larger<float>{});
    double raw_sum = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int id = i * kChunkThreads + static_cast<int>(threadIdx.x);
      if (id < count) raw_sum += weight_of(values[i], found.raw_largest, 1.0);
    }
    found.raw_sum = block_reduce<kChunkThreads>(raw_sum, Plus<double>{});
  }
  if (threadIdx.x == 0) chunks[row * gridDim.x + blockIdx.x] = found;
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

// A place between keys: `above` is the sum of values of all keys from `end` on.
template <typename T>
struct Place {
  uint32_t least = 0;
  uint64_t end = 0;
  T above = 0;
};

// The largest key whose sum of values over it and all larger keys is at least `wanted`, given that the sum from
// place.least on is and that from place.end on is not. Each pass over the row cuts the range in kCuts + 1 parts.
template <typename L, typename T, typename Value>
__device__ Place<T> narrow_down(const Row<L>& row, Place<T> place, T wanted, Value value) {
  while (place.least + uint64_t{1} < place.end) {
    uint32_t cuts[kCuts];
    T sums[kCuts] = {};
#pragma unroll
    for (int i = 0; i < kCuts; ++i) {
      cuts[i] = static_cast<uint32_t>(place.least + (place.end - place.least) * (i + 1) / (kCuts + 1));
    }
    const auto last = static_cast<uint32_t>(place.end - 1);
    for (int id = threadIdx.x; id < row.vocab; id += kRowThreads) {
      const float logit = row.logit(id);
      const uint32_t key = key_of(logit);
      if (key < cuts[0] || key > last || !row.is_open(id)) continue;
      const T own = value(logit);
#pragma unroll
      for (int i = 0; i < kCuts; ++i) {
        if (key >= cuts[i] && (i + 1 == kCuts || key < cuts[i + 1])) sums[i] += own;
      }
    }
#pragma unroll
    for (int i = 0; i < kCuts; ++i) sums[i] = block_reduce<kRowThreads>(sums[i], Plus<T>{});
    bool found = false;
#pragma unroll
    for (int i = kCuts - 1; i >= 0; --i) {
      if (found) continue;
      if (place.above + sums[i] >= wanted) {
        place.least = cuts[i];
        found = true;
      } else {
        place.above += sums[i];
        place.end = cuts[i];
      }
    }
  }
  return place;
}

struct One {
  __device__ int32_t operator()(float) const { return 1; }
};
template <typename T>
struct Weight {
  const Row<T>& row;
  __device__ double operator()(float logit) const { return row.weight(logit); }
};

// The least key whose weight is at least min_p. The largest logit has weight 1 and always stays.
template <typename T>
__device__ uint32_t least_of_min_p(const Row<T>& row, double min_p) {
  uint32_t low = 0, high = key_of(row.largest);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (row.weight(value_of(middle)) >= min_p) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// The k-th largest key from `least` on, or `least` when there are no more than k.
template <typename T>
__device__ uint32_t least_of_top_k(const Row<T>& row, uint32_t least, int32_t k) {
  int32_t count = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kRowThreads) {
    count += row.is_open(id) && key_of(row.logit(id)) >= least ? 1 : 0;
  }
  if (block_reduce<kRowThreads>(count, Plus<int32_t>{}) <= k) return least;
  const Place<int32_t> everything{least, key_of(row.largest) + uint64_t{1}, 0};
  return narrow_down(row, everything, k, One{}).least;
}

template <typename T>
__device__ Kept keep_top_p(const Row<T>& row, uint32_t least, double top_p) {
  // Most of the mass lies near the largest logit, and what lies far from it costs most of the exponentials.
  const float far = static_cast<float>(static_cast<double>(row.largest) - kFar / row.inverse);
  const uint32_t border = max(least, key_of(far));
  double near_mass = 0, far_mass = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kRowThreads) {
    const float logit = row.logit(id);
    const uint32_t key = key_of(logit);
    if (key < least || !row.is_open(id)) continue;
    (key >= border ? near_mass : far_mass) += row.weight(logit);
  }
  near_mass = block_reduce<kRowThreads>(near_mass, Plus<double>{});
  far_mass = block_reduce<kRowThreads>(far_mass, Plus<double>{});
  const double wanted = top_p * (near_mass + far_mass);
  Place<double> place{border, key_of(row.largest) + uint64_t{1}, 0};
  if (near_mass < wanted) place = {least, border, near_mass};
  place = narrow_down(row, place, wanted, Weight<T>{row});
  const double needed = ceil((wanted - place.above) / row.weight(value_of(place.least)));
  return {place.least, needed < 1 ? 1 : (needed < INT_MAX ? static_cast<int32_t>(needed) : INT_MAX)};
}

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

template <typename T>
__device__ Walk walk_row(const Row<T>& row, const Kept& kept, double target) {
  Walk walk;
  for (int begin = 0; begin < row.vocab; begin += kChunk) {
    if (walk_chunk(row, kept, begin, target, walk)) break;
  }
  return walk;
}

struct RowSums {
  Ranked best = kNone;
  double total = 0;    // of exp((logit - best) / temperature)
  double log_raw = 0;  // log sum exp of all logits
  int32_t count = 0;
  int32_t bad = INT_MAX;
};

// The chunks' results joined, in the chunks' order. `prefix`: what lies before each chunk, [chunks + 1].
__device__ RowSums join(const Chunk* chunks, int count, double inverse, bool raw, double* prefix) {
  const bool has = static_cast<int>(threadIdx.x) < count;
  Chunk mine{kNone, -INFINITY, 0, 0, 0, INT_MAX, 0};
  if (has) mine = chunks[threadIdx.x];
  RowSums sums;
  sums.best = block_reduce<kRowThreads>(mine.best, Larger<Ranked>{});
  sums.bad = block_reduce<kRowThreads>(mine.bad, Smaller{});
  sums.count = block_reduce<kRowThreads>(mine.count, Plus<int32_t>{});
  const float raw_largest = raw ? block_reduce<kRowThreads>(mine.raw_largest, Larger<float>{}) : logit_of(sums.best);
  const double raw_part = raw && has ? mine.raw_sum * weight_of(mine.raw_largest, raw_largest, 1.0) : 0.0;
  const double raw_sum = raw ? block_reduce<kRowThreads>(raw_part, Plus<double>{}) : 0.0;
  if (has) {
    const bool open = mine.best != kNone && sums.bad == INT_MAX;
    prefix[threadIdx.x + 1] = open ? mine.sum * weight_of(logit_of(mine.best), logit_of(sums.best), inverse) : 0.0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    prefix[0] = 0;
    for (int i = 1; i <= count; ++i) prefix[i] += prefix[i - 1];
  }
  __syncthreads();
  sums.total = prefix[count];
  sums.log_raw = static_cast<double>(raw_largest) + log(raw ? raw_sum : sums.total);
  return sums;
}

// Without filters: first the chunk, then the token in it.
template <typename T>
__device__ int32_t draw_plainly(const Row<T>& row, const double* prefix, int chunks, double uniform) {
  const double target = uniform * prefix[chunks];
  int chunk = 0, last = 0;
  for (; chunk < chunks; ++chunk) {
    if (prefix[chunk + 1] > prefix[chunk]) last = chunk;
    if (prefix[chunk + 1] > target) break;
  }
  Walk walk;
  walk.total = prefix[last];
  walk_chunk(row, Kept{}, last * kChunk, target, walk);
  return walk.token;
}

template <typename T>
__device__ Walk draw_filtered(const Row<T>& row, const SampleRow& sample) {
  Kept kept;
  if (sample.min_p > 0) kept.least = least_of_min_p(row, static_cast<double>(sample.min_p));
  if (sample.top_k >= 1) kept.least = least_of_top_k(row, kept.least, sample.top_k);
  if (sample.top_p < 1.0f) kept = keep_top_p(row, kept.least, static_cast<double>(sample.top_p));
  const double total = walk_row(row, kept, INFINITY).total;
  Walk walk = walk_row(row, kept, sample.uniform * total);
  walk.total = total;
  return walk;
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    finish_rows(const T* logits, int64_t vocab, const SampleRow* samples, const int32_t* banned, bool raw_logprobs,
                const Chunk* all_chunks, int chunks, DrawnRow* drawn) {
  extern __shared__ uint32_t mask[];
  __shared__ double prefix[kMostChunks + 1];
  const int64_t index = blockIdx.x;
  const SampleRow sample = samples[index];
  const bool forced = sample.forced >= 0;
  const int bans = forced ? 0 : sample.banned_count;
  const double inverse = inverse_temperature(sample);
  const bool raw = !forced && raw_logprobs && (bans > 0 || inverse != 1.0);
  const T* const from = logits + index * vocab;
  const RowSums sums = join(all_chunks + index * chunks, chunks, inverse, raw, prefix);
  const float largest = logit_of(sums.best);
  DrawnRow result;
  if (sums.bad < INT_MAX) {
    result.bad_token = sums.bad;
    result.bad_logit = widen(from[sums.bad]);
  } else if (forced) {
    result.token = sample.forced;
    result.logprob = static_cast<float>(static_cast<double>(widen(from[sample.forced])) - sums.log_raw);
    result.rank = sums.count;
    result.top_token = id_of(sums.best);
    result.top_logprob = static_cast<float>(static_cast<double>(largest) - sums.log_raw);
  } else if (sums.best != kNone) {
    if (bans > 0) {
      for (int i = threadIdx.x; i < (vocab + 31) / 32; i += kRowThreads) mask[i] = 0;
      __syncthreads();
      for (int i = threadIdx.x; i < bans; i += kRowThreads) {
        const int id = banned[sample.banned_begin + i];
        if (id >= 0 && id < vocab) atomicOr(mask + id / 32, 1u << (id % 32));
      }
      __syncthreads();
    }
    const Row<T> row{from, static_cast<int>(vocab), bans > 0 ? mask : nullptr, largest, inverse};
    double total = sums.total;
    if (sample.temperature <= 0) {
      result.token = id_of(sums.best);
    } else if (sample.min_p > 0 || (sample.top_k >= 1 && sample.top_k < vocab) || sample.top_p < 1.0f) {
      const Walk walk = draw_filtered(row, sample);
      result.token = walk.token;
      total = walk.total;
    } else {
      result.token = draw_plainly(row, prefix, chunks, sample.uniform);
    }
    const auto logit = static_cast<double>(widen(from[result.token]));
    result.logprob = static_cast<float>(raw_logprobs ? logit - sums.log_raw
                                                     : (logit - static_cast<double>(largest)) * inverse - log(total));
  }
  if (threadIdx.x == 0) drawn[index] = result;
}

int64_t chunks_of(int64_t vocab) {
  return (vocab + kChunk - 1) / kChunk;
}

}  // namespace

void draw_rows(const void* logits, LogitType type, int64_t rows, int64_t vocab, const SampleRow* samples,
               const int32_t* banned, bool raw_logprobs, void* workspace, DrawnRow* drawn, Stream stream) {
  if (rows == 0) return;
  const int64_t chunks = chunks_of(vocab);
  // The bits of a row's banned ids have to fit into the 48 KiB that every GPU gives a block.
  VIME_CHECK(chunks <= kMostChunks && vocab <= 320 * 1024,
             "sampling from a vocabulary of " + std::to_string(vocab) + " tokens");
  auto* const table = static_cast<Chunk*>(workspace);
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(rows));
  const auto mask_bytes = static_cast<size_t>((vocab + 31) / 32) * sizeof(uint32_t);
  const auto launch = [&](auto* typed) {
    look_at_chunks<<<grid, kChunkThreads, 0, stream>>>(typed, vocab, samples, banned, raw_logprobs, table);
    VIME_CUDA(cudaGetLastError());
    finish_rows<<<static_cast<unsigned>(rows), kRowThreads, mask_bytes, stream>>>(
        typed, vocab, samples, banned, raw_logprobs, table, static_cast<int>(chunks), drawn);
    VIME_CUDA(cudaGetLastError());
  };
  if (type == LogitType::bf16) {
    launch(static_cast<const __nv_bfloat16*>(logits));
  } else {
    launch(static_cast<const float*>(logits));
  }
}

uint64_t draw_workspace_bytes(int64_t rows, int64_t vocab) {
  return static_cast<uint64_t>(rows * chunks_of(vocab)) * sizeof(Chunk);
}

}  // namespace vime::gpu
