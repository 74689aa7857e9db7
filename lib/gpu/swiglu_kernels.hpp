// SwiGLU (Shazeer 2020): silu(gate) * up with silu(x) = x / (1 + exp(-x)), forward and backward, in bf16 with float32
// inside. Nothing blocks: kernels are queued on `stream`.
#pragma once

#include <cstdint>

#include "gpu/element.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

// [rows, width], rows `stride` elements apart: a matrix of its own or one half of the columns of another.
template <class T>
struct Rows {
  T* values = nullptr;
  int64_t stride = 0;
};

struct Swiglu {
  Rows<const Bf16> gate, up;
  int64_t rows = 0;
  int64_t width = 0;
};

void swiglu(const Swiglu& in, const Rows<Bf16>& product, Stream stream);

// d_gate and d_up may be the memory of gate and up. product is written where it has values: the same bits as the
// forward pass gave, which need not be kept for the down projection's weight gradient.
void swiglu_backward(const Swiglu& in, const Rows<const Bf16>& d_product, const Rows<Bf16>& d_gate,
                     const Rows<Bf16>& d_up, const Rows<Bf16>& product, Stream stream);

}  // namespace vime::gpu
