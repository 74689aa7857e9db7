// What the copy kernel reads: made by copies.cpp, used by copy_kernel.cu. Not for other rooms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/copies.hpp"

namespace vime::gpu {

// A copy is cut into tiles of this many units; a unit is what one thread moves at once.
inline constexpr uint32_t kTileUnits = 2048;

struct CopyEntry {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t first_tile = 0;  // of the tiles of all copies of its kind
  uint64_t rows = 1;
  uint64_t from_pitch = 0;
  uint64_t to_pitch = 0;
  uint64_t units_per_row = 0;
  uint64_t first_index = 0;
  uint64_t index_pitch = 0;
  uint32_t unit_bytes = 0;  // of `from`
  uint32_t tail_bytes = 0;  // behind the last unit; only of a single row
  uint32_t sum = 0;         // where the sum goes
};

// Each has a kernel of its own.
enum class CopyKind { plain, elements_1, elements_2, elements_4, elements_8, f32_to_bf16, bf16_to_f32 };

// Copies of one kind, whose tiles are numbered from 0 to `tiles`, fewer than 2^31. All in the GPU's memory.
struct CopyGroup {
  const CopyEntry* entries = nullptr;
  const uint32_t* owners = nullptr;  // [tiles]: which entry a tile belongs to
  uint64_t tiles = 0;
};

// sums: null for none.
void launch_copies(CopyKind kind, const CopyGroup& group, uint64_t* sums, Stream stream);

}  // namespace vime::gpu
