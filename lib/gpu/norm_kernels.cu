// A block takes a few rows at a time, each thread the same columns of all of them, so that many loads are under way
// before the block meets to add up its sums; the weight's gradient stays in registers over all rows of a block.
#include "gpu/norm_kernels.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/column_sums.cuh"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kThreads = 512;            // most of a block
constexpr int64_t kPartialBlocks = 396;  // of the backward pass, each with a partial sum of the weight's gradient
constexpr int64_t kFewRows = 1024;       // up to here a block takes one row, to have as many blocks as there are rows

// How a row lies over a block: packs per thread, and threads.
struct RowShape {
  int packs = 1;
  int threads = kWarp;
};

RowShape row_shape(int64_t width) {
  const int64_t packs = divide_up(width, kPack);
  RowShape shape;
  while (packs > shape.packs * kThreads) shape.packs *= 2;
  shape.threads = static_cast<int>(divide_up(divide_up(packs, shape.packs), kWarp) * kWarp);
  return shape;
}

__device__ int64_t column_of(int pack) {
  return (static_cast<int64_t>(pack) * blockDim.x + threadIdx.x) * kPack;
}

template <int kPacks, int kRows, bool kAligned>
__global__ void __launch_bounds__(kThreads) forward(AddRmsNorm norm) {
  __shared__ float scratch[kThreads / kWarp][kRows];
  const int64_t first = int64_t{blockIdx.x} * kRows;
  Pack sums[kRows][kPacks];
  if (norm.delta == nullptr) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t begin = min(first + r, norm.rows - 1) * norm.width;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) sums[r][p] = load_pack<kAligned>(norm.x + begin, column_of(p), norm.width);
    }
  } else {
    Pack deltas[kRows][kPacks];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t begin = min(first + r, norm.rows - 1) * norm.width;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        sums[r][p] = load_pack<kAligned>(norm.x + begin, column_of(p), norm.width);
        deltas[r][p] = load_pack<kAligned>(norm.delta + begin, column_of(p), norm.width);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
#pragma unroll
        for (int i = 0; i < kPack / 2; ++i) {
          const uint32_t a = sums[r][p].pairs[i];
          const uint32_t b = deltas[r][p].pairs[i];
          sums[r][p].pairs[i] = rounded(low_half(a) + low_half(b), high_half(a) + high_half(b));
        }
        if (first + r < norm.rows) {
          store_pack<kAligned>(norm.sum + (first + r) * norm.width, column_of(p), norm.width, sums[r][p]);
        }
      }
    }
  }
  float squares[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) squares[r] += value_of(sums[r][p], i) * value_of(sums[r][p], i);
    }
  }
  sum_over_block(squares, scratch);
  Pack weight[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) weight[p] = load_pack<kAligned>(norm.weight, column_of(p), norm.width);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= norm.rows) break;
    const float inverse = rsqrtf(squares[r] / static_cast<float>(norm.width) + norm.epsilon);
    if (norm.inverse != nullptr && threadIdx.x == 0) norm.inverse[first + r] = inverse;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float values[kPack];
#pragma unroll
      for (int i = 0; i < kPack; ++i) values[i] = value_of(sums[r][p], i) * inverse * value_of(weight[p], i);
      store_pack<kAligned>(norm.normal + (first + r) * norm.width, column_of(p), norm.width, rounded(values));
    }
  }
}

// With n = sum * inverse: d sum = inverse * (g w - n mean(g w n)), d weight = sum over rows of g n.
template <int kPacks, int kRows, bool kAligned>
__global__ void __launch_bounds__(kThreads) backward(AddRmsNormBackward norm) {
  __shared__ float scratch[2][kThreads / kWarp][kRows];
  Pack weight[kPacks];
  float d_weight[kPacks][kPack] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) weight[p] = load_pack<kAligned>(norm.weight, column_of(p), norm.width);
  int round = 0;
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < norm.rows; first += int64_t{gridDim.x} * kRows) {
    Pack gradients[kRows][kPacks], sums[kRows][kPacks], residuals[kRows][kPacks];
    float inverse[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t begin = min(first + r, norm.rows - 1) * norm.width;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        gradients[r][p] = load_pack<kAligned>(norm.d_normal + begin, column_of(p), norm.width);
        sums[r][p] = load_pack<kAligned>(norm.sum + begin, column_of(p), norm.width);
        residuals[r][p] =
            norm.d_sum == nullptr ? Pack{} : load_pack<kAligned>(norm.d_sum + begin, column_of(p), norm.width);
      }
      inverse[r] = norm.inverse[min(first + r, norm.rows - 1)];
    }
    float means[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool real = first + r < norm.rows;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          const float by_normal = value_of(gradients[r][p], i) * (value_of(sums[r][p], i) * inverse[r]);
          means[r] += by_normal * value_of(weight[p], i);
          if (real) d_weight[p][i] += by_normal;
        }
      }
    }
    // Every other round has a scratch of its own: a warp that is ahead cannot pass the next round's barrier.
    sum_over_block(means, scratch[round]);
    round ^= 1;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= norm.rows) break;
      const float mean = means[r] / static_cast<float>(norm.width);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        float values[kPack];
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          const float normal = value_of(sums[r][p], i) * inverse[r];
          values[i] = inverse[r] * (value_of(gradients[r][p], i) * value_of(weight[p], i) - normal * mean) +
                      value_of(residuals[r][p], i);
        }
        store_pack<kAligned>(norm.d_x + (first + r) * norm.width, column_of(p), norm.width, rounded(values));
      }
    }
  }
  if (norm.d_weight == nullptr) return;
  float* partial = norm.workspace + int64_t{blockIdx.x} * norm.width;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (column_of(p) + i < norm.width) partial[column_of(p) + i] = d_weight[p][i];
    }
  }
}

template <int kPacks, bool kAligned>
void launch_forward(const AddRmsNorm& norm, int threads, Stream stream) {
  constexpr int kMany = 4 / kPacks;
  if (norm.rows <= kFewRows) {
    forward<kPacks, 1, kAligned><<<static_cast<unsigned>(norm.rows), threads, 0, stream>>>(norm);
  } else {
    forward<kPacks, kMany, kAligned><<<static_cast<unsigned>(divide_up(norm.rows, kMany)), threads, 0, stream>>>(norm);
  }
}

template <int kPacks, bool kAligned>
int64_t launch_backward(const AddRmsNormBackward& norm, int threads, Stream stream) {
  constexpr int kMany = kPacks == 1 ? 2 : 1;
  const int64_t blocks = std::min(divide_up(norm.rows, kMany), kPartialBlocks);
  backward<kPacks, kMany, kAligned><<<static_cast<unsigned>(blocks), threads, 0, stream>>>(norm);
  return blocks;
}

void check_width(int64_t width) {
  VIME_CHECK(width > 0 && width <= kLargestNormWidth, "RMSNorm kernels take widths up to 16384");
}

}  // namespace

void add_rms_norm(const AddRmsNorm& norm, Stream stream) {
  check_width(norm.width);
  if (norm.rows == 0) return;
  const RowShape shape = row_shape(norm.width);
  const bool packs = norm.width % kPack == 0 && aligned(norm.x) && aligned(norm.delta) && aligned(norm.weight) &&
                     aligned(norm.sum) && aligned(norm.normal);
  if (!packs) {
    launch_forward<4, false>(norm, kThreads, stream);
  } else if (shape.packs == 1) {
    launch_forward<1, true>(norm, shape.threads, stream);
  } else if (shape.packs == 2) {
    launch_forward<2, true>(norm, shape.threads, stream);
  } else {
    launch_forward<4, true>(norm, shape.threads, stream);
  }
  VIME_CUDA(cudaGetLastError());
}

int64_t add_rms_norm_workspace(int64_t width) {
  return kPartialBlocks * width;
}

void add_rms_norm_backward(const AddRmsNormBackward& norm, Stream stream) {
  check_width(norm.width);
  if (norm.rows == 0) return;
  const RowShape shape = row_shape(norm.width);
  const bool packs = norm.width % kPack == 0 && aligned(norm.d_normal) && aligned(norm.d_sum) && aligned(norm.sum) &&
                     aligned(norm.weight) && aligned(norm.d_x);
  int64_t blocks = 0;
  if (!packs) {
    blocks = launch_backward<4, false>(norm, kThreads, stream);
  } else if (shape.packs == 1) {
    blocks = launch_backward<1, true>(norm, shape.threads, stream);
  } else if (shape.packs == 2) {
    blocks = launch_backward<2, true>(norm, shape.threads, stream);
  } else {
    blocks = launch_backward<4, true>(norm, shape.threads, stream);
  }
  VIME_CUDA(cudaGetLastError());
  if (norm.d_weight != nullptr) {
    add_column_sums(norm.workspace, blocks, norm.width, norm.width, norm.d_weight, stream);
  }
}

}  // namespace vime::gpu
