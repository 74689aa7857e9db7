#include "gpu/check.hpp"
#include "gpu/column_sums.cuh"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kStrands = 32;

__global__ void __launch_bounds__(kWarp* kStrands)
    sum_columns(const float* __restrict__ partials, int64_t rows, int64_t columns, int64_t stride, float* sums) {
  __shared__ float strands[kStrands][kWarp];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < rows; row += kStrands) sum += partials[row * stride + column];
  }
  strands[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float whole = 0;
#pragma unroll
  for (int i = 0; i < kStrands; ++i) whole += strands[i][threadIdx.x];
  sums[column] += whole;
}

}  // namespace

void add_column_sums(const float* partials, int64_t rows, int64_t columns, int64_t stride, float* sums, Stream stream) {
  const auto blocks = static_cast<unsigned>(divide_up(columns, kWarp));
  sum_columns<<<blocks, dim3(kWarp, kStrands), 0, stream>>>(partials, rows, columns, stride, sums);
  VIME_CUDA(cudaGetLastError());
}

}  // namespace vime::gpu
