// The copies of arch::copy_overlap and arch::place_shard, and weights::part_checksum, as a GPU does them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arch/parameters.hpp"
#include "gpu/copies.hpp"
#include "tensor/tensor.hpp"

namespace vime::channels {

// What the shard `from` of a tensor, of `dtype`, has in common with the shard `to`, which has the parameter's own
// dtype. With the sum that part_checksum gives for what is copied. No rows: nothing in common. Error{refused} where the
// GPU has no cast from one dtype to the other.
gpu::Copy copy_of_overlap(const std::byte* from_bytes, tensor::DType dtype, const arch::Shard& from,
                          const tensor::TensorInfo& own, const arch::Shard& to, std::byte* to_bytes);
// A shard into its whole tensor, without a cast.
gpu::Copy copy_into_whole(const std::byte* local, const tensor::TensorInfo& info, const arch::Shard& shard,
                          std::byte* full);
// Nothing is copied; the sum is part_checksum's.
gpu::Copy sum_of_part(const std::byte* local, const tensor::TensorInfo& info, const arch::Shard& shard);

// weights::part_checksum of every entry of the layout, whose arena nothing writes meanwhile. Blocks until it is done.
std::vector<uint64_t> part_checksums(const arch::ArenaLayout& layout, const std::byte* arena);

}  // namespace vime::channels
