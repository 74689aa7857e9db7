#include "gpu/swiglu_kernels.hpp"

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;  // packs a thread, a block apart

// Where the pack with this number lies; packs are counted along the rows.
struct Spot {
  int64_t row;
  int64_t column;
};

__device__ Spot spot_of(uint32_t pack, uint32_t packs_per_row) {
  const uint32_t row = pack / packs_per_row;
  return {row, static_cast<int64_t>(pack - row * packs_per_row) * kPack};
}

// __expf and __fdividef are off by a few units in the last place of float32, of which bf16 keeps a 65,536th.
__device__ float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) forward(Swiglu in, Rows<Bf16> product, uint32_t packs_per_row) {
  const uint32_t packs = static_cast<uint32_t>(in.rows) * packs_per_row;
  const uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
  Pack gate[kUnroll], up[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const Spot spot = spot_of(min(first + u * kThreads, packs - 1), packs_per_row);
    gate[u] = load_pack<kAligned>(in.gate.values + spot.row * in.gate.stride, spot.column, in.width);
    up[u] = load_pack<kAligned>(in.up.values + spot.row * in.up.stride, spot.column, in.width);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= packs) break;
    const Spot spot = spot_of(first + u * kThreads, packs_per_row);
    float values[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float g = value_of(gate[u], i);
      values[i] = g * sigmoid(g) * value_of(up[u], i);
    }
    store_pack<kAligned>(product.values + spot.row * product.stride, spot.column, in.width, rounded(values));
  }
}

// With s = sigmoid(gate) and d = d product: d gate = d up s (1 + gate (1 - s)), d up = d gate s.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) backward(Swiglu in, Rows<const Bf16> d_product, Rows<Bf16> d_gate,
                                                     Rows<Bf16> d_up, Rows<Bf16> product, uint32_t packs_per_row) {
  const uint32_t packs = static_cast<uint32_t>(in.rows) * packs_per_row;
  const uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
  Pack gate[kUnroll], up[kUnroll], gradient[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const Spot spot = spot_of(min(first + u * kThreads, packs - 1), packs_per_row);
    gate[u] = load_pack<kAligned>(in.gate.values + spot.row * in.gate.stride, spot.column, in.width);
    up[u] = load_pack<kAligned>(in.up.values + spot.row * in.up.stride, spot.column, in.width);
    gradient[u] = load_pack<kAligned>(d_product.values + spot.row * d_product.stride, spot.column, in.width);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= packs) break;
    const Spot spot = spot_of(first + u * kThreads, packs_per_row);
    float by_gate[kPack], by_up[kPack], values[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float g = value_of(gate[u], i);
      const float s = sigmoid(g);
      const float d = value_of(gradient[u], i);
      values[i] = g * s * value_of(up[u], i);
      by_up[i] = d * (g * s);
      by_gate[i] = d * value_of(up[u], i) * (s * (1.0f + g * (1.0f - s)));
    }
    store_pack<kAligned>(d_gate.values + spot.row * d_gate.stride, spot.column, in.width, rounded(by_gate));
    store_pack<kAligned>(d_up.values + spot.row * d_up.stride, spot.column, in.width, rounded(by_up));
    if (product.values == nullptr) continue;
    store_pack<kAligned>(product.values + spot.row * product.stride, spot.column, in.width, rounded(values));
  }
}

template <class T>
bool in_packs(const Rows<T>& rows) {
  return aligned(rows.values) && rows.stride % kPack == 0;
}

struct Launch {
  uint32_t packs_per_row = 0;
  unsigned blocks = 0;
};

Launch launch_of(const Swiglu& in) {
  const int64_t packs_per_row = divide_up(in.width, kPack);
  const int64_t packs = in.rows * packs_per_row;
  VIME_CHECK(packs < int64_t{1} << 31, "SwiGLU kernels take up to 2^34 elements");
  return {static_cast<uint32_t>(packs_per_row), static_cast<unsigned>(divide_up(packs, kThreads * kUnroll))};
}

}  // namespace

void swiglu(const Swiglu& in, const Rows<Bf16>& product, Stream stream) {
  if (in.rows == 0 || in.width == 0) return;
  const Launch launch = launch_of(in);
  if (in.width % kPack == 0 && in_packs(in.gate) && in_packs(in.up) && in_packs(product)) {
    forward<true><<<launch.blocks, kThreads, 0, stream>>>(in, product, launch.packs_per_row);
  } else {
    forward<false><<<launch.blocks, kThreads, 0, stream>>>(in, product, launch.packs_per_row);
  }
  VIME_CUDA(cudaGetLastError());
}

void swiglu_backward(const Swiglu& in, const Rows<const Bf16>& d_product, const Rows<Bf16>& d_gate,
                     const Rows<Bf16>& d_up, const Rows<Bf16>& product, Stream stream) {
  if (in.rows == 0 || in.width == 0) return;
  const Launch launch = launch_of(in);
  if (in.width % kPack == 0 && in_packs(in.gate) && in_packs(in.up) && in_packs(d_product) && in_packs(d_gate) &&
      in_packs(d_up) && in_packs(product)) {
    backward<true><<<launch.blocks, kThreads, 0, stream>>>(in, d_product, d_gate, d_up, product, launch.packs_per_row);
  } else {
    backward<false><<<launch.blocks, kThreads, 0, stream>>>(in, d_product, d_gate, d_up, product, launch.packs_per_row);
  }
  VIME_CUDA(cudaGetLastError());
}

}  // namespace vime::gpu
