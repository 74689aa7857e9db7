// Two launches. The first looks at each chunk of each row once: its largest logit and its sum of weights. The second
// has a block for each row: without filters it finds the chunk in which the cumulative distribution passes the random
// number, and the token in it; with filters it does what sampling_filters.cuh says. Every sum is taken in an order that
// depends on the vocabulary's size alone.
#include "gpu/sampling_kernels.hpp"

#include <cuda_bf16.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/sampling_filters.cuh"
#include "gpu/sampling_row.cuh"

namespace vime::gpu {
namespace {

using namespace draws;

constexpr int kChunkThreads = 256;
constexpr int kPerThread = kChunk / kChunkThreads;
constexpr int kMostChunks = 512;

struct Chunk {
  Ranked best;        // of the ids that are not banned; kNone: there is none
  float raw_largest;  // of all ids
  int32_t count;      // logits at least as large as the forced token's
  double sum;         // of exp((logit - largest) / temperature), ids that are not banned
  double raw_sum;     // of exp(logit - raw_largest), all ids
  int32_t bad;        // the lowest id whose logit is not finite, or INT_MAX
  int32_t padding;
};

__device__ double inverse_temperature(const SampleRow& sample) {
  return sample.forced < 0 && sample.temperature > 0 ? 1.0 / static_cast<double>(sample.temperature) : 1.0;
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
