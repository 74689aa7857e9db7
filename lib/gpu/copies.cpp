#include "gpu/copies.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/copy_table.hpp"

namespace vime::gpu {
namespace {

uint64_t written_row_bytes(const Copy& copy) {
  switch (copy.cast) {
    case Cast::none:
      return copy.row_bytes;
    case Cast::f32_to_bf16:
      return copy.row_bytes / 2;
    case Cast::bf16_to_f32:
      return copy.row_bytes * 2;
  }
  return copy.row_bytes;
}

// Rows that follow each other without a gap, in the sums' indices too, are one row.
Copy joined(Copy copy, bool summed) {
  if (copy.rows < 2) return copy;
  const bool from_joins = copy.from_pitch == copy.row_bytes;
  const bool to_joins = copy.to == nullptr || copy.to_pitch == written_row_bytes(copy);
  const bool index_joins = !summed || copy.index_pitch * static_cast<uint64_t>(copy.element_bytes) == copy.row_bytes;
  if (!from_joins || !to_joins || !index_joins) return copy;
  copy.row_bytes *= copy.rows;
  copy.rows = 1;
  return copy;
}

// A flat copy that CUDA's own does as well as anything can; there it costs nothing to be one of few.
constexpr uint64_t kLargeBytes = uint64_t{64} << 20;

bool is_flat(const Copy& copy) {
  return copy.rows == 1 && copy.cast == Cast::none;
}

// Without sums, copies that lie behind each other on both sides are one: where both have the same layout, all are.
std::vector<Copy> merged(const std::vector<Copy>& copies) {
  std::vector<Copy> merged;
  for (const Copy& given : copies) {
    if (given.row_bytes == 0 || given.rows == 0) continue;
    const Copy copy = joined(given, false);
    if (!merged.empty() && is_flat(copy) && is_flat(merged.back()) &&
        merged.back().from + merged.back().row_bytes == copy.from &&
        merged.back().to + merged.back().row_bytes == copy.to) {
      merged.back().row_bytes += copy.row_bytes;
    } else {
      merged.push_back(copy);
    }
  }
  return merged;
}

uint64_t address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// Whether units of `from` that are this long, and of `to` as long as they become, begin at multiples of their length.
bool fits(const Copy& copy, uint64_t unit) {
  const uint64_t written = unit * written_row_bytes(copy) / copy.row_bytes;
  if (address(copy.from) % unit != 0) return false;
  if (copy.to != nullptr && address(copy.to) % std::min<uint64_t>(written, 16) != 0) return false;
  if (copy.rows == 1) return true;
  return copy.row_bytes % unit == 0 && copy.from_pitch % unit == 0 &&
         (copy.to == nullptr || copy.to_pitch % std::min<uint64_t>(written, 16) == 0);
}

// The longest unit that one thread can move; with elements to look at it is a vector of 16 bytes or one element.
uint32_t unit_of(const Copy& copy, bool elements) {
  if (elements) return fits(copy, 16) ? 16 : static_cast<uint32_t>(copy.element_bytes);
  for (const uint32_t unit : {16u, 8u, 4u, 2u}) {
    if (fits(copy, unit)) return unit;
  }
  return 1;
}

CopyEntry entry_of(const Copy& given, bool summed, uint64_t first_tile, uint32_t sum) {
  const Copy copy = joined(given, summed);
  CopyEntry entry;
  entry.from = copy.from;
  entry.to = copy.to;
  entry.first_tile = first_tile;
  entry.rows = copy.rows;
  entry.from_pitch = copy.from_pitch;
  entry.to_pitch = copy.to_pitch;
  entry.unit_bytes = unit_of(copy, summed || copy.cast != Cast::none);
  entry.units_per_row = copy.row_bytes / entry.unit_bytes;
  entry.tail_bytes = static_cast<uint32_t>(copy.row_bytes % entry.unit_bytes);
  entry.first_index = copy.first_index;
  entry.index_pitch = copy.index_pitch;
  entry.sum = sum;
  VIME_CHECK(copy.rows == 1 || entry.units_per_row < (uint64_t{1} << 31), "a row of a copy is too long");
  return entry;
}

void check_copy(const Copy& copy, bool summed) {
  if (!summed && copy.cast == Cast::none) {
    VIME_CHECK(copy.to != nullptr, "a copy that goes nowhere");
    return;
  }
  const auto element = static_cast<uint64_t>(copy.element_bytes);
  VIME_CHECK(element == 1 || element == 2 || element == 4 || element == 8,
             "elements of " + std::to_string(copy.element_bytes) + " bytes");
  VIME_CHECK(copy.cast == Cast::none || element == (copy.cast == Cast::f32_to_bf16 ? 4u : 2u),
             "a cast of elements of another size");
  VIME_CHECK(copy.row_bytes % element == 0 && address(copy.from) % element == 0, "a copy within an element");
}

CopyKind kind_of(const Copy& copy, bool summed) {
  if (copy.cast == Cast::f32_to_bf16) return CopyKind::f32_to_bf16;
  if (copy.cast == Cast::bf16_to_f32) return CopyKind::bf16_to_f32;
  if (!summed) return CopyKind::plain;
  switch (copy.element_bytes) {
    case 1:
      return CopyKind::elements_1;
    case 2:
      return CopyKind::elements_2;
    case 4:
      return CopyKind::elements_4;
    default:
      return CopyKind::elements_8;
  }
}

}  // namespace

struct Copies::Group {
  CopyKind kind = CopyKind::plain;
  CopyGroup table;
};

Copies::Copies(const std::vector<Copy>& given, bool sums) : count_(given.size()) {
  for (const Copy& copy : given) check_copy(copy, sums);
  const std::vector<Copy> copies = sums ? given : merged(given);
  std::map<CopyKind, std::vector<CopyEntry>> of_kind;
  std::map<CopyKind, uint64_t> tiles;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    if (copy.row_bytes == 0 || copy.rows == 0) continue;
    if (!sums && is_flat(copy) && copy.row_bytes >= kLargeBytes) {
      large_.push_back(copy);
      bytes_ += copy.row_bytes;
      continue;
    }
    const CopyKind kind = kind_of(copy, sums);
    const CopyEntry entry = entry_of(copy, sums, tiles[kind], static_cast<uint32_t>(i));
    // What is behind the last unit goes with the last tile, so there has to be one.
    tiles[kind] += std::max<uint64_t>(1, (entry.rows * entry.units_per_row + kTileUnits - 1) / kTileUnits);
    of_kind[kind].push_back(entry);
    bytes_ += copy.row_bytes * copy.rows;
  }
  if (sums) {
    sums_ = std::make_unique<DeviceMemory>(count_ * sizeof(uint64_t), DeviceMemory::Use::own);
    table_bytes_ += sums_->bytes();
  }
  // Of every kind its entries, then for each of its tiles the entry.
  std::vector<std::byte> table;
  const auto append = [&](const void* data, std::size_t bytes) {
    const std::size_t at = table.size();
    table.resize(at + (bytes + alignof(CopyEntry) - 1) / alignof(CopyEntry) * alignof(CopyEntry));
    std::memcpy(table.data() + at, data, bytes);
    return at;
  };
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const auto& [kind, entries] : of_kind) {
    VIME_CHECK(tiles[kind] < (uint64_t{1} << 31), "a list of copies is too long");
    std::vector<uint32_t> owners(tiles[kind]);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const uint64_t end = i + 1 < entries.size() ? entries[i + 1].first_tile : tiles[kind];
      std::fill(owners.begin() + static_cast<std::ptrdiff_t>(entries[i].first_tile),
                owners.begin() + static_cast<std::ptrdiff_t>(end), static_cast<uint32_t>(i));
    }
    const std::size_t entries_at = append(entries.data(), entries.size() * sizeof(CopyEntry));
    places.emplace_back(entries_at, append(owners.data(), owners.size() * sizeof(uint32_t)));
    groups_.push_back({kind, {nullptr, nullptr, tiles[kind]}});
  }
  if (table.empty()) return;
  table_ = std::make_unique<DeviceMemory>(table.size(), DeviceMemory::Use::own);
  table_bytes_ += table_->bytes();
  VIME_CUDA(cudaMemcpy(table_->data(), table.data(), table.size(), cudaMemcpyHostToDevice));
  // From memory that is not pinned the call may return before the bytes are there, and streams do not wait for it.
  VIME_CUDA(cudaStreamSynchronize(nullptr));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].table.entries = reinterpret_cast<const CopyEntry*>(table_->data() + places[i].first);
    groups_[i].table.owners = reinterpret_cast<const uint32_t*>(table_->data() + places[i].second);
  }
}

Copies::~Copies() = default;

void Copies::run(Stream stream) {
  uint64_t* const sums = sums_ ? reinterpret_cast<uint64_t*>(sums_->data()) : nullptr;
  if (sums_) VIME_CUDA(cudaMemsetAsync(sums, 0, sums_->bytes(), stream));
  for (const Copy& copy : large_) {
    VIME_CUDA(cudaMemcpyAsync(copy.to, copy.from, copy.row_bytes, cudaMemcpyDeviceToDevice, stream));
  }
  for (const Group& group : groups_) launch_copies(group.kind, group.table, sums, stream);
}

std::vector<uint64_t> Copies::sums(Stream stream) const {
  VIME_CHECK(sums_ != nullptr, "copies without sums");
  std::vector<uint64_t> sums(count_);
  VIME_CUDA(cudaMemcpyAsync(sums.data(), sums_->data(), count_ * sizeof(uint64_t), cudaMemcpyDeviceToHost, stream));
  VIME_CUDA(cudaStreamSynchronize(stream));
  return sums;
}

}  // namespace vime::gpu
