// How a push is cut into requests: buckets of whole tensors, closed before they would exceed the buffer size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tensor/tensor.hpp"

namespace vime::weights {

struct BucketEntry {
  tensor::TensorInfo info;
  uint64_t offset = 0;  // bytes from the handle's start (or the message's)
};

struct Bucket {
  std::vector<BucketEntry> entries;
  uint64_t bytes = 0;
  std::string key;  // a receiver's: the same entries come again under it; "" where that is not known
};

// Packs tensors in their order. A bucket is closed before it would exceed buffer_bytes; a larger tensor is its own
// bucket. Every offset is a multiple of its tensor's element size. No tensors: no buckets.
// alignment: of every offset besides, a power of two; GPUs copy 16 bytes at a time where both ends allow it.
std::vector<Bucket> pack_buckets(const std::vector<tensor::TensorInfo>& tensors, uint64_t buffer_bytes,
                                 uint64_t alignment = 1);

// All of them in one, one behind the other.
Bucket bucket_of(const std::vector<tensor::TensorInfo>& tensors);

// A tensor that lies somewhere in an arena already.
struct PlacedTensor {
  tensor::TensorInfo info;
  uint64_t offset = 0;  // bytes from the arena's start
};

// A stretch of an arena that is sent as it lies there; the bucket's offsets count from its beginning.
struct ArenaChunk {
  uint64_t begin = 0;
  Bucket bucket;
};
// Consecutive stretches of at most chunk_bytes, but for larger tensors. `tensors` are in the arena's order. While the
// next stretch arrives, a receiver puts the tensors of one in their places; nothing hides that for the last one, so a
// stretch is at most half of what is left, down to a sixteenth of chunk_bytes.
std::vector<ArenaChunk> arena_chunks(const std::vector<PlacedTensor>& tensors, uint64_t chunk_bytes);

// Brings a bucket's tensors together: takes them, in the order of its entries, from the front of `left` and writes each
// where its entry says. `into` has room for bucket.bytes; bytes between tensors are left alone.
void pack_bucket(const Bucket& bucket, std::span<const tensor::TensorView>& left, std::byte* into);

// {"names", "dtype_names", "shapes", "tensor_offsets"}: vLLM's lists, and where each tensor begins.
Json manifest_json(const Bucket& bucket);
// Tells one manifest from another: 16 hexadecimal digits of its buckets' names, dtypes, shapes and offsets.
std::string manifest_key(std::span<const Bucket> buckets);
// Throws Error{refused} when the lists are absent, of unequal length, or hold an unknown dtype, a negative size or a
// misaligned offset.
Bucket parse_manifest(const Json& update_info);

}  // namespace vime::weights
