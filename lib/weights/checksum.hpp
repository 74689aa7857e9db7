// Content checksum of a tensor that shards can add up: the sum over its elements of mix64(bits + golden * flat index),
// modulo 2^64. The index is the element's place in the full row-major tensor, so the sums of disjoint shards are the
// full tensor's sum, in any order. Made to find lost, stale, swapped and shifted data, not to resist an attacker.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/tensor.hpp"

namespace vime::weights {

// Of the part [begin, end) along `dim` of the full tensor; `local` holds just that part, contiguous.
uint64_t part_checksum(const tensor::TensorInfo& full, int dim, int64_t begin, int64_t end, const std::byte* local);

uint64_t full_checksum(const tensor::TensorView& tensor);

}  // namespace vime::weights
