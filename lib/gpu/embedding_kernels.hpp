// The gradient of an embedding table. Nothing blocks: the kernel is queued on `stream`; the same bits every time.
#pragma once

#include <cstdint>

#include "gpu/element.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

// table[ids[i]] += rows[i] for all i, each row of the table in the order in which the tokens stand in `order`: the
// sorting was stable, so that is the order of the tokens. sorted_ids: int64 [tokens], the ids in ascending order; ids
// below 0 are left out (tokens of other ranks). order: int64 [tokens], where each sorted id stood. rows: [tokens,
// width], table: float32 [vocab, width].
struct EmbeddingGradient {
  const Bf16* rows = nullptr;
  const int64_t* sorted_ids = nullptr;
  const int64_t* order = nullptr;
  float* table = nullptr;
  int64_t tokens = 0;
  int64_t width = 0;
};
void add_embedding_gradient(const EmbeddingGradient& gradient, Stream stream);

}  // namespace vime::gpu
