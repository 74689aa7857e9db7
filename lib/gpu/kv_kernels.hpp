// Keys and values of one layer in a slotted cache, [slot][position][kv head][head_dim], one such array for keys and one
// for values, and attention of single rows over it. A row's result depends on nothing but its own sequence and the
// cache's number of positions: keys are cut into chunks of a fixed size, whose partial results are put together in
// order.
//
// Everything is given to a stream and returns at once. No call allocates, so all of it may be captured into a graph.
// Only in builds with CUDA.
#pragma once

#include <cstdint>

#include "gpu/stream.hpp"

namespace vime::gpu {

enum class KvType { bf16, f16, f32 };

struct KvShape {
  int64_t positions = 0;  // of a slot
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

// The rows of a step, one entry each, in the GPU's memory.
struct KvRows {
  int64_t count = 0;
  const int32_t* slots = nullptr;    // -1: padding, touches no slot and attends to nothing
  const int32_t* lengths = nullptr;  // the row's position + 1; 0 for padding
};

// k and v: [rows, kv_heads, head_dim], a row every `k_stride` and `v_stride` elements.
void store_kv(const void* k, int64_t k_stride, const void* v, int64_t v_stride, void* keys, void* values,
              const KvRows& rows, const KvShape& shape, KvType type, Stream stream);

// q and out: [rows, heads, head_dim], packed; a multiple of kv_heads heads, head_dim up to 256. Each row attends to
// positions 0..length-1 of its slot, scores scaled by 1 / sqrt(head_dim). workspace: attend_workspace_bytes(). Padding
// rows get zeros. In float32 inside, whatever the type.
void attend_rows(const void* q, const void* keys, const void* values, void* out, void* workspace, const KvRows& rows,
                 int64_t heads, const KvShape& shape, KvType type, Stream stream);
uint64_t attend_workspace_bytes(int64_t rows, int64_t heads, const KvShape& shape);

}  // namespace vime::gpu
