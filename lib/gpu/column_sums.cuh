// The second stage of sums over very many rows: kernels leave a partial sum for each block, in rows, and the columns
// are added up here, in row order within a few strands. Not for other rooms.
#pragma once

#include <cstdint>

#include "gpu/stream.hpp"

namespace vime::gpu {

// sums[column] += sum over rows of partials[row * stride + column]
void add_column_sums(const float* partials, int64_t rows, int64_t columns, int64_t stride, float* sums, Stream stream);

}  // namespace vime::gpu
