#include "gpu/embedding_kernels.hpp"

#include <algorithm>

#include "gpu/check.hpp"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

// A block adds up the rows of one id: the one whose first token stands at the block's place. The others have nothing to
// do.
template <bool kAligned>
__global__ void __launch_bounds__(kLargestBlock) add_rows(EmbeddingGradient work) {
  const int64_t begin = blockIdx.x;
  const int64_t id = work.sorted_ids[begin];
  if (id < 0 || (begin > 0 && work.sorted_ids[begin - 1] == id)) return;
  int64_t end = begin + 1;  // of the id's tokens; beyond it every id is larger
  for (int64_t high = work.tokens; end < high;) {
    const int64_t middle = (end + high) / 2;
    if (work.sorted_ids[middle] == id) {
      end = middle + 1;
    } else {
      high = middle;
    }
  }
  float* target = work.table + id * work.width;
  for (int64_t column = int64_t{threadIdx.x} * kPack; column < work.width; column += int64_t{blockDim.x} * kPack) {
    float sums[kPack] = {};
#pragma unroll 8
    for (int64_t i = begin; i < end; ++i) {
      const Pack pack = load_pack<kAligned>(work.rows + work.order[i] * work.width, column, work.width);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[k] += value_of(pack, k);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if (column + k < work.width) target[column + k] += sums[k];
    }
  }
}

}  // namespace

void add_embedding_gradient(const EmbeddingGradient& gradient, Stream stream) {
  if (gradient.tokens == 0) return;
  const auto blocks = static_cast<unsigned>(gradient.tokens);
  const auto threads = static_cast<unsigned>(
      std::min<int64_t>(divide_up(divide_up(gradient.width, kPack), kWarp) * kWarp, kLargestBlock));
  if (gradient.width % kPack == 0 && aligned(gradient.rows)) {
    add_rows<true><<<blocks, threads, 0, stream>>>(gradient);
  } else {
    add_rows<false><<<blocks, threads, 0, stream>>>(gradient);
  }
  VIME_CUDA(cudaGetLastError());
}

}  // namespace vime::gpu
