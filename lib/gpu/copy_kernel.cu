// The kernel behind Copies. A block moves one tile of one copy, whichever it is, so that neither one huge tensor nor
// thousands of small ones leave the GPU idle; a table says which copy a tile belongs to. Short-lived blocks of many
// threads with a few loads each came out fastest (97 % of cudaMemcpyAsync, 92 % with blocks that stay and walk on).
#include <cuda_bf16.h>

#include <algorithm>

#include "gpu/check.hpp"
#include "gpu/copy_table.hpp"

namespace vime::gpu {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kUnroll = kTileUnits / kThreads;
// What the registers of a thread are limited for.
constexpr uint32_t kPlainBlocks = 4;
constexpr uint32_t kElementBlocks = 2;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

// base/random.hpp's mix64.
__device__ __forceinline__ uint64_t mix(uint64_t x) {
  x += kGolden;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Which units of its copy a tile has.
struct Range {
  uint64_t first = 0;
  uint32_t count = 0;
};
__device__ __forceinline__ Range range_of(const CopyEntry& entry, uint64_t tile) {
  const uint64_t first = tile * kTileUnits, units = entry.rows * entry.units_per_row;
  const uint64_t left = units > first ? units - first : 0;
  return {first, left < kTileUnits ? static_cast<uint32_t>(left) : kTileUnits};
}

// Where a unit of a copy with several rows lies. A row has fewer than 2^31 units.
struct Spot {
  uint64_t row = 0;
  uint32_t column = 0;  // in units
};
class Rows {
 public:
  __device__ Rows(const CopyEntry& entry, uint64_t first) : width_(static_cast<uint32_t>(entry.units_per_row)) {
    row_ = first / width_;
    column_ = static_cast<uint32_t>(first - row_ * width_);
  }
  __device__ __forceinline__ Spot at(uint32_t i) const {
    const uint32_t place = column_ + i;
    return {row_ + place / width_, place % width_};
  }

 private:
  uint32_t width_;
  uint64_t row_;
  uint32_t column_;
};

template <typename Unit>
__device__ __forceinline__ void copy_flat(const CopyEntry& entry, const Range& range) {
  const Unit* const from = reinterpret_cast<const Unit*>(entry.from) + range.first + threadIdx.x;
  Unit* const to = reinterpret_cast<Unit*>(entry.to) + range.first + threadIdx.x;
  if (range.count == kTileUnits) {
    Unit held[kUnroll];
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) held[k] = __ldcs(from + k * kThreads);
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) __stcs(to + k * kThreads, held[k]);
    return;
  }
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < range.count; i += kThreads) to[i - threadIdx.x] = from[i - threadIdx.x];
}

template <typename Unit>
__device__ __forceinline__ void copy_rows(const CopyEntry& entry, const Range& range) {
  const Rows rows(entry, range.first);
#pragma unroll 2
  for (uint32_t i = threadIdx.x; i < range.count; i += kThreads) {
    const Spot spot = rows.at(i);
    const Unit held = __ldcs(reinterpret_cast<const Unit*>(entry.from + spot.row * entry.from_pitch) + spot.column);
    __stcs(reinterpret_cast<Unit*>(entry.to + spot.row * entry.to_pitch) + spot.column, held);
  }
}

template <typename Unit>
__device__ __forceinline__ void copy_tile(const CopyEntry& entry, uint64_t tile) {
  const Range range = range_of(entry, tile);
  if (entry.rows == 1) {
    copy_flat<Unit>(entry, range);
  } else {
    copy_rows<Unit>(entry, range);
  }
}

template <Cast cast, typename From>
__device__ __forceinline__ auto converted(From bits) {
  if constexpr (cast == Cast::f32_to_bf16) {
    const float value = __uint_as_float(bits);
    if (isnan(value)) return static_cast<uint16_t>(0x7fc0);
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else if constexpr (cast == Cast::bf16_to_f32) {
    return static_cast<uint32_t>(bits) << 16;
  } else {
    return bits;
  }
}

// Count elements at once.
template <typename T, int Count>
struct alignas(sizeof(T) * Count > 16 ? 16 : sizeof(T) * Count) Pack {
  T values[Count];
};

// index: of the first element. to: null for nothing.
template <Cast cast, typename From, int Count, typename To>
__device__ __forceinline__ void move_elements(const Pack<From, Count>& in, Pack<To, Count>* to, uint64_t index,
                                              bool summed, uint64_t& sum) {
  Pack<To, Count> out;
  uint64_t place = kGolden * index;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    out.values[i] = converted<cast>(in.values[i]);
    if (summed) sum += mix(static_cast<uint64_t>(out.values[i]) + place);
    place += kGolden;
  }
  if (to != nullptr) *to = out;
}

template <Cast cast, typename From, int Count>
__device__ __forceinline__ void move_flat(const CopyEntry& entry, const Range& range, bool summed, uint64_t& sum) {
  using In = Pack<From, Count>;
  using Out = Pack<decltype(converted<cast>(From{})), Count>;
  constexpr uint32_t kHeld = kUnroll;
  const In* from = reinterpret_cast<const In*>(entry.from) + range.first + threadIdx.x;
  Out* to = entry.to == nullptr ? nullptr : reinterpret_cast<Out*>(entry.to) + range.first + threadIdx.x;
  uint64_t index = entry.first_index + (range.first + threadIdx.x) * Count;
#pragma unroll 1
  for (uint32_t begin = threadIdx.x; begin < range.count; begin += kHeld * kThreads) {
    In held[kHeld];
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k) {
      if (begin + k * kThreads < range.count) held[k] = from[k * kThreads];
    }
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k) {
      if (begin + k * kThreads >= range.count) continue;
      move_elements<cast>(held[k], to == nullptr ? to : to + k * kThreads, index + k * kThreads * Count, summed, sum);
    }
    from += kHeld * kThreads;
    if (to != nullptr) to += kHeld * kThreads;
    index += kHeld * kThreads * Count;
  }
}

template <Cast cast, typename From, int Count>
__device__ __forceinline__ void move_rows(const CopyEntry& entry, const Range& range, bool summed, uint64_t& sum) {
  using In = Pack<From, Count>;
  using Out = Pack<decltype(converted<cast>(From{})), Count>;
  const Rows rows(entry, range.first);
#pragma unroll 2
  for (uint32_t i = threadIdx.x; i < range.count; i += kThreads) {
    const Spot spot = rows.at(i);
    const In held = reinterpret_cast<const In*>(entry.from + spot.row * entry.from_pitch)[spot.column];
    Out* const to =
        entry.to == nullptr ? nullptr : reinterpret_cast<Out*>(entry.to + spot.row * entry.to_pitch) + spot.column;
    const uint64_t index = entry.first_index + spot.row * entry.index_pitch + uint64_t{spot.column} * Count;
    move_elements<cast>(held, to, index, summed, sum);
  }
}

// What a single row has behind its last vector, element by element.
template <Cast cast, typename From>
__device__ __forceinline__ void move_tail(const CopyEntry& entry, bool summed, uint64_t& sum) {
  if (threadIdx.x * sizeof(From) >= entry.tail_bytes) return;
  using In = Pack<From, 1>;
  using Out = Pack<decltype(converted<cast>(From{})), 1>;
  const uint64_t element = entry.units_per_row * entry.unit_bytes / sizeof(From) + threadIdx.x;
  Out* const to = entry.to == nullptr ? nullptr : reinterpret_cast<Out*>(entry.to) + element;
  move_elements<cast>(reinterpret_cast<const In*>(entry.from)[element], to, entry.first_index + element, summed, sum);
}

// What a kernel does with a tile; returns the sum of the thread's elements.
struct PlainTiles {
  static constexpr uint32_t kBlocks = kPlainBlocks;
  static __device__ __forceinline__ uint64_t run(const CopyEntry& entry, uint64_t tile, bool last, bool) {
    switch (entry.unit_bytes) {
      case 16:
        copy_tile<uint4>(entry, tile);
        break;
      case 8:
        copy_tile<uint2>(entry, tile);
        break;
      case 4:
        copy_tile<uint32_t>(entry, tile);
        break;
      case 2:
        copy_tile<uint16_t>(entry, tile);
        break;
      default:
        copy_tile<uint8_t>(entry, tile);
    }
    if (last && threadIdx.x < entry.tail_bytes) {
      const uint64_t at = entry.units_per_row * entry.unit_bytes + threadIdx.x;
      entry.to[at] = entry.from[at];
    }
    return 0;
  }
};

template <Cast cast, typename From>
struct ElementTiles {
  static constexpr uint32_t kBlocks = kElementBlocks;
  template <int Count>
  static __device__ __forceinline__ void move(const CopyEntry& entry, uint64_t tile, bool summed, uint64_t& sum) {
    const Range range = range_of(entry, tile);
    if (entry.rows == 1) {
      move_flat<cast, From, Count>(entry, range, summed, sum);
    } else {
      move_rows<cast, From, Count>(entry, range, summed, sum);
    }
  }
  static __device__ __forceinline__ uint64_t run(const CopyEntry& entry, uint64_t tile, bool last, bool summed) {
    uint64_t sum = 0;
    if (entry.unit_bytes == 16) {
      move<16 / sizeof(From)>(entry, tile, summed, sum);
    } else {
      move<1>(entry, tile, summed, sum);
    }
    if (last && entry.tail_bytes != 0) move_tail<cast, From>(entry, summed, sum);
    return sum;
  }
};

// Adds what the block's threads have summed; the order does not matter to a sum modulo 2^64.
__device__ __forceinline__ void add_up(uint64_t sum, uint64_t* to) {
  __shared__ uint64_t of_warps[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t warp = 1; warp < kThreads / 32; ++warp) sum += of_warps[warp];
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(sum));
}

template <typename Tiles>
__global__ void __launch_bounds__(kThreads, Tiles::kBlocks)
    copy_kernel(const CopyEntry* __restrict__ entries, const uint32_t* __restrict__ owners, uint64_t* sums) {
  const CopyEntry& entry = entries[owners[blockIdx.x]];
  const uint64_t tile = blockIdx.x - entry.first_tile;
  const bool last = (tile + 1) * kTileUnits >= entry.rows * entry.units_per_row;
  const uint64_t sum = Tiles::run(entry, tile, last, sums != nullptr);
  if (sums != nullptr) add_up(sum, sums + entry.sum);
}

template <typename Tiles>
void launch(const CopyGroup& group, uint64_t* sums, Stream stream) {
  copy_kernel<Tiles><<<static_cast<uint32_t>(group.tiles), kThreads, 0, stream>>>(group.entries, group.owners, sums);
  check(cudaGetLastError(), "launch of the copy kernel");
}

}  // namespace

void launch_copies(CopyKind kind, const CopyGroup& group, uint64_t* sums, Stream stream) {
  switch (kind) {
    case CopyKind::plain:
      return launch<PlainTiles>(group, sums, stream);
    case CopyKind::elements_1:
      return launch<ElementTiles<Cast::none, uint8_t>>(group, sums, stream);
    case CopyKind::elements_2:
      return launch<ElementTiles<Cast::none, uint16_t>>(group, sums, stream);
    case CopyKind::elements_4:
      return launch<ElementTiles<Cast::none, uint32_t>>(group, sums, stream);
    case CopyKind::elements_8:
      return launch<ElementTiles<Cast::none, uint64_t>>(group, sums, stream);
    case CopyKind::f32_to_bf16:
      return launch<ElementTiles<Cast::f32_to_bf16, uint32_t>>(group, sums, stream);
    case CopyKind::bf16_to_f32:
      return launch<ElementTiles<Cast::bf16_to_f32, uint16_t>>(group, sums, stream);
  }
}

}  // namespace vime::gpu
