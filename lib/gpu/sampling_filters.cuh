// Draws with min_p, top_k and top_p: each filter becomes the least logit that stays, which is found by cutting the
// range of logits again and again, and the row is walked over once more.
#pragma once

#include "gpu/sampling_row.cuh"

namespace vime::gpu::draws {

constexpr int kCuts = 7;
constexpr double kFar = 20;  // weights of less than exp(-kFar) are together far below most cuts

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

template <typename T>
__device__ Walk walk_row(const Row<T>& row, const Kept& kept, double target) {
  Walk walk;
  for (int begin = 0; begin < row.vocab; begin += kChunk) {
    if (walk_chunk(row, kept, begin, target, walk)) break;
  }
  return walk;
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

}  // namespace vime::gpu::draws
