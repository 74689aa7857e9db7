// Keys and values of all slots: [layer][slot][kv head][position][head_dim] float32, one such array for keys and one for
// values. The attention over it reads positions 0..n of one slot in a fixed order, so its result depends on nothing but
// that sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/pages.hpp"

namespace vime::executor {

struct KvShape {
  int64_t layers = 0;
  int64_t slots = 0;
  int64_t kv_heads = 0;  // of this worker
  int64_t positions = 0;
  int64_t head_dim = 0;

  uint64_t floats() const { return static_cast<uint64_t>(layers * slots * kv_heads * positions * head_dim); }
};

class KvCache {
 public:
  explicit KvCache(const KvShape& shape)
      : shape_(shape), keys_(shape.floats() * sizeof(float)), values_(keys_.bytes()) {}

  const KvShape& shape() const { return shape_; }
  // The first position of a slot's head: [positions, head_dim].
  float* keys(int64_t layer, int64_t slot, int64_t kv_head) { return at(keys_, layer, slot, kv_head); }
  float* values(int64_t layer, int64_t slot, int64_t kv_head) { return at(values_, layer, slot, kv_head); }
  void drop() {
    keys_.drop();
    values_.drop();
  }

 private:
  float* at(Pages& pages, int64_t layer, int64_t slot, int64_t kv_head) {
    const int64_t index =
        ((layer * shape_.slots + slot) * shape_.kv_heads + kv_head) * shape_.positions * shape_.head_dim;
    return reinterpret_cast<float*>(pages.data()) + index;
  }

  KvShape shape_;
  Pages keys_;
  Pages values_;
};

// softmax(q k^T / sqrt(head_dim)) v over `length` positions. q and out: [head_dim]; keys and values: [length,
// head_dim]. `scores` is scratch of at least `length`.
void attend(const float* q, const float* keys, const float* values, int64_t length, int64_t head_dim, float* scores,
            float* out);

}  // namespace vime::executor
