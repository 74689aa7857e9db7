// RMSNorm of each query and key head (Qwen3; none in Llama and Qwen2) and the rotary embedding behind it, in the
// half-split form of transformers, in one pass over q and k, forward and backward; bf16 with float32 inside. Nothing
// blocks: kernels are queued on `stream`. A token's bits do not depend on the other tokens; all results are the same
// bits every time.
#pragma once

#include <cstdint>

#include "gpu/element.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

constexpr int64_t kLargestHeadDim = 256;

// [tokens, heads, head_dim]: the heads of a token lie one behind the other, tokens are `stride` elements apart. That is
// a tensor of its own or columns of one that holds q, k and v side by side.
template <class T>
struct Heads {
  T* values = nullptr;
  int64_t heads = 0;
  int64_t stride = 0;
};

struct RotaryShape {
  int64_t tokens = 0;
  int64_t head_dim = 0;                // even, at most kLargestHeadDim
  const int64_t* positions = nullptr;  // [tokens]
  const float* cos = nullptr;          // [positions, head_dim / 2]
  const float* sin = nullptr;
  const Bf16* q_weight = nullptr;  // [head_dim]; null: no norm, k_weight then too
  const Bf16* k_weight = nullptr;
  float epsilon = 0;
};

void norm_and_rotate(const RotaryShape& shape, const Heads<const Bf16>& q, const Heads<const Bf16>& k,
                     const Heads<Bf16>& q_out, const Heads<Bf16>& k_out, Stream stream);

// q and k as before the norms (not read without norms). d_v, where it has heads, is copied to d_v_in: the gradient of
// the columns that hold all three is then whole. The gradients of the weights, float32 [head_dim], are added to; null
// where nobody wants them. workspace: norm_and_rotate_workspace(head_dim) floats, not needed without norms.
struct RotaryBackward {
  Heads<const Bf16> d_q, d_k, d_v;
  Heads<const Bf16> q, k;
  Heads<Bf16> d_q_in, d_k_in, d_v_in;
  float* d_q_weight = nullptr;
  float* d_k_weight = nullptr;
  float* workspace = nullptr;
};
int64_t norm_and_rotate_workspace(int64_t head_dim);
void norm_and_rotate_backward(const RotaryShape& shape, const RotaryBackward& backward, Stream stream);

}  // namespace vime::gpu
