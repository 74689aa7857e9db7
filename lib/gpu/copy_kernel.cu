// The kernel behind Copies. All copies' tiles stand in one row, and every block takes an equal stretch of it: it looks
// up the copy that its stretch begins in and walks on from there, so that neither one huge tensor nor thousands of
// small ones leave blocks idle. A thread has eight loads under way before it writes, which is what keeps the memory
// busy.
#include <cuda_bf16.h>

#include <algorithm>

#include "gpu/check.hpp"
#include "gpu/copy_table.hpp"

namespace vime::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kUnroll = kTileUnits / kThreads;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

// base/random.hpp's mix64.
__device__ __forceinline__ uint64_t mix(uint64_t x) {
  x += kGolden;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Where a thread's unit of a tile lies.
struct Spot {
  uint64_t from = 0;   // bytes
  uint64_t to = 0;     // bytes
  uint64_t index = 0;  // of the unit's first element
};

// The units of one tile, by their place within it.
template <bool Indexed>
class Tile {
 public:
  __device__ Tile(const CopyEntry& entry, uint64_t tile, uint32_t written_unit)
      : entry_(entry), written_unit_(written_unit) {
    first_ = tile * kTileUnits;
    const uint64_t units = entry.rows * entry.units_per_row;
    count_ = units <= first_ ? 0 : units - first_ < kTileUnits ? static_cast<uint32_t>(units - first_) : kTileUnits;
    if (entry.rows == 1) {
      column_ = first_;
    } else {
      row_ = first_ / entry.units_per_row;
      column_ = first_ - row_ * entry.units_per_row;
    }
    per_unit_ = Indexed ? entry.unit_bytes / entry.element_bytes : 0;
  }
  __device__ uint32_t count() const { return count_; }
  __device__ Spot at(uint32_t i) const {
    uint64_t row = row_, column = column_ + i;
    if (entry_.rows != 1) {
      const auto width = static_cast<uint32_t>(entry_.units_per_row);
      const auto place = static_cast<uint32_t>(column);
      row += place / width;
      column = place % width;
    }
    Spot spot;
    spot.from = row * entry_.from_pitch + column * entry_.unit_bytes;
    spot.to = row * entry_.to_pitch + column * written_unit_;
    if (Indexed) spot.index = entry_.first_index + row * entry_.index_pitch + column * per_unit_;
    return spot;
  }

 private:
  const CopyEntry& entry_;
  uint32_t written_unit_;
  uint64_t first_ = 0, row_ = 0, column_ = 0;
  uint32_t count_ = 0, per_unit_ = 0;
};

template <typename Unit>
__device__ void copy_tile(const CopyEntry& entry, uint64_t number) {
  const Tile<false> tile(entry, number, sizeof(Unit));
  Unit held[kUnroll];
#pragma unroll
  for (uint32_t k = 0; k < kUnroll; ++k) {
    const uint32_t i = threadIdx.x + k * kThreads;
    if (i < tile.count()) held[k] = __ldcs(reinterpret_cast<const Unit*>(entry.from + tile.at(i).from));
  }
#pragma unroll
  for (uint32_t k = 0; k < kUnroll; ++k) {
    const uint32_t i = threadIdx.x + k * kThreads;
    if (i < tile.count()) __stcs(reinterpret_cast<Unit*>(entry.to + tile.at(i).to), held[k]);
  }
}

template <int Bytes>
struct Bits;
template <>
struct Bits<1> {
  using type = uint8_t;
};
template <>
struct Bits<2> {
  using type = uint16_t;
};
template <>
struct Bits<4> {
  using type = uint32_t;
};
template <>
struct Bits<8> {
  using type = uint64_t;
};

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

template <Cast cast, typename From, int Count>
__device__ __forceinline__ void move_elements(const CopyEntry& entry, const Spot& spot, const Pack<From, Count>& in,
                                              bool summed, uint64_t& sum) {
  using To = decltype(converted<cast>(From{}));
  Pack<To, Count> out;
  uint64_t place = kGolden * spot.index;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    out.values[i] = converted<cast>(in.values[i]);
    if (summed) sum += mix(static_cast<uint64_t>(out.values[i]) + place);
    place += kGolden;
  }
  if (entry.to != nullptr) *reinterpret_cast<Pack<To, Count>*>(entry.to + spot.to) = out;
}

template <Cast cast, typename From, int Count>
__device__ void move_tile(const CopyEntry& entry, uint64_t number, bool summed, uint64_t& sum) {
  using To = decltype(converted<cast>(From{}));
  constexpr uint32_t kHeld = kUnroll / 2;
  const Tile<true> tile(entry, number, sizeof(To) * Count);
  for (uint32_t half = 0; half < kUnroll; half += kHeld) {
    Pack<From, Count> held[kHeld];
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k) {
      const uint32_t i = threadIdx.x + (half + k) * kThreads;
      if (i < tile.count()) held[k] = *reinterpret_cast<const Pack<From, Count>*>(entry.from + tile.at(i).from);
    }
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k) {
      const uint32_t i = threadIdx.x + (half + k) * kThreads;
      if (i < tile.count()) move_elements<cast>(entry, tile.at(i), held[k], summed, sum);
    }
  }
}

// What one row has behind its last vector, element by element.
template <Cast cast, typename From>
__device__ void move_tail(const CopyEntry& entry, bool summed, uint64_t& sum) {
  if (threadIdx.x * sizeof(From) >= entry.tail_bytes) return;
  using To = decltype(converted<cast>(From{}));
  const uint64_t element = entry.units_per_row * entry.unit_bytes / sizeof(From) + threadIdx.x;
  const Spot spot{element * sizeof(From), element * sizeof(To), entry.first_index + element};
  const auto in = *reinterpret_cast<const Pack<From, 1>*>(entry.from + spot.from);
  move_elements<cast>(entry, spot, in, summed, sum);
}

template <Cast cast, typename From>
__device__ void move_typed(const CopyEntry& entry, uint64_t number, bool last, bool summed, uint64_t& sum) {
  if (entry.unit_bytes == 16) {
    move_tile<cast, From, static_cast<int>(16 / sizeof(From))>(entry, number, summed, sum);
  } else {
    move_tile<cast, From, 1>(entry, number, summed, sum);
  }
  if (last && entry.tail_bytes != 0) move_tail<cast, From>(entry, summed, sum);
}

struct PlainTiles {
  static __device__ void run(const CopyEntry& entry, uint64_t number, bool last, bool, uint64_t&) {
    switch (entry.unit_bytes) {
      case 16:
        copy_tile<uint4>(entry, number);
        break;
      case 8:
        copy_tile<uint2>(entry, number);
        break;
      case 4:
        copy_tile<uint32_t>(entry, number);
        break;
      case 2:
        copy_tile<uint16_t>(entry, number);
        break;
      default:
        copy_tile<uint8_t>(entry, number);
    }
    if (last && threadIdx.x < entry.tail_bytes) {
      const uint64_t at = entry.units_per_row * entry.unit_bytes + threadIdx.x;
      entry.to[at] = entry.from[at];
    }
  }
};

struct ElementTiles {
  static __device__ void run(const CopyEntry& entry, uint64_t number, bool last, bool summed, uint64_t& sum) {
    if (entry.cast == Cast::f32_to_bf16) {
      move_typed<Cast::f32_to_bf16, uint32_t>(entry, number, last, summed, sum);
    } else if (entry.cast == Cast::bf16_to_f32) {
      move_typed<Cast::bf16_to_f32, uint16_t>(entry, number, last, summed, sum);
    } else if (entry.element_bytes == 1) {
      move_typed<Cast::none, uint8_t>(entry, number, last, summed, sum);
    } else if (entry.element_bytes == 2) {
      move_typed<Cast::none, uint16_t>(entry, number, last, summed, sum);
    } else if (entry.element_bytes == 4) {
      move_typed<Cast::none, uint32_t>(entry, number, last, summed, sum);
    } else {
      move_typed<Cast::none, uint64_t>(entry, number, last, summed, sum);
    }
  }
};

// Adds what the block's threads have summed of one copy; the order does not matter to a sum modulo 2^64.
__device__ void add_up(uint64_t sum, uint64_t* to) {
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(sum));
}

template <typename Tiles>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const CopyEntry* entries, uint32_t count, uint64_t tiles, uint64_t* sums) {
  uint64_t tile = tiles * blockIdx.x / gridDim.x;
  const uint64_t end = tiles * (blockIdx.x + 1) / gridDim.x;
  uint32_t low = 0, high = count;  // the copy of the first tile is in [low, high)
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (entries[middle].first_tile <= tile ? low : high) = middle;
  }
  for (; tile < end; ++low) {
    const CopyEntry entry = entries[low];
    const uint64_t behind = low + 1 < count ? entries[low + 1].first_tile : tiles;
    const uint64_t stop = behind < end ? behind : end;
    uint64_t sum = 0;
    for (; tile < stop; ++tile) {
      Tiles::run(entry, tile - entry.first_tile, tile + 1 == behind, sums != nullptr, sum);
    }
    if (sums != nullptr) add_up(sum, sums + entry.sum);
  }
}

template <typename Tiles>
void launch(const CopyEntry* entries, uint32_t count, uint64_t tiles, uint64_t* sums, Stream stream) {
  int device = 0, processors = 0, resident = 0;
  VIME_CUDA(cudaGetDevice(&device));
  VIME_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  VIME_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, copy_kernel<Tiles>, kThreads, 0));
  const uint64_t blocks =
      std::min<uint64_t>(tiles, static_cast<uint64_t>(processors) * static_cast<uint64_t>(resident));
  copy_kernel<Tiles><<<static_cast<uint32_t>(blocks), kThreads, 0, stream>>>(entries, count, tiles, sums);
  check(cudaGetLastError(), "launch of the copy kernel");
}

}  // namespace

void launch_copies(const CopyEntry* entries, uint32_t count, uint64_t tiles, bool plain, uint64_t* sums,
                   Stream stream) {
  if (plain) {
    launch<PlainTiles>(entries, count, tiles, sums, stream);
  } else {
    launch<ElementTiles>(entries, count, tiles, sums, stream);
  }
}

}  // namespace vime::gpu
