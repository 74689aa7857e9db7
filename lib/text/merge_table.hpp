// The merges of a byte-pair encoding: a flat hash table from a pair of token ids to the merge's rank and result.
// Immutable once filled; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace vime::text {

class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNone;  // lower is earlier; kNone: these two do not merge
    uint32_t id = 0;
  };

  explicit MergeTable(size_t count) {
    size_t capacity = 16;
    while (capacity < count * 2) capacity *= 2;
    mask_ = capacity - 1;
    slots_.resize(capacity);
  }

  // A pair that is there already takes the new rank.
  void insert(uint32_t left, uint32_t right, Merge merge) {
    Slot& slot = slots_[place_of(left, right)];
    slot = {left, right, merge};
  }

  Merge find(uint32_t left, uint32_t right) const { return slots_[place_of(left, right)].merge; }

 private:
  struct Slot {
    uint32_t left = 0;
    uint32_t right = 0;
    Merge merge;
  };

  // The pair's slot, or the free one where it would go; at least half of all are free.
  size_t place_of(uint32_t left, uint32_t right) const {
    uint64_t key = uint64_t{left} << 32 | right;
    key = (key ^ (key >> 31)) * 0x9e3779b97f4a7c15ull;
    size_t place = (key ^ (key >> 29)) & mask_;
    while (slots_[place].merge.rank != kNone && (slots_[place].left != left || slots_[place].right != right)) {
      place = (place + 1) & mask_;
    }
    return place;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace vime::text
