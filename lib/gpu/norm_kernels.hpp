// RMSNorm (Zhang and Sennrich 2019) with the residual addition before it, forward and backward, in bf16 with float32
// inside. Nothing blocks: kernels are queued on `stream`. A row's bits do not depend on the other rows; all results are
// the same bits every time.
#pragma once

#include <cstdint>

#include "gpu/element.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

constexpr int64_t kLargestNormWidth = 16384;

// sum = x + delta, rounded once; normal = weight * sum / sqrt(mean(sum^2) + epsilon), rounded once. delta may be null:
// then the sum is x, and `sum` is not written. x, delta, sum, normal: [rows, width]; weight: [width]; inverse: float32
// [rows], 1 / sqrt(...), may be null. sum may be x or delta.
struct AddRmsNorm {
  const Bf16* x = nullptr;
  const Bf16* delta = nullptr;
  const Bf16* weight = nullptr;
  Bf16* sum = nullptr;
  Bf16* normal = nullptr;
  float* inverse = nullptr;
  int64_t rows = 0;
  int64_t width = 0;  // at most kLargestNormWidth
  float epsilon = 0;
};
void add_rms_norm(const AddRmsNorm& norm, Stream stream);

// d_x = d_sum + the gradient through the norm: the gradient of x and of delta alike. d_sum, what arrives over the
// residual path, may be null, or the same memory as d_x. d_weight, float32 [width], is added to; null where nobody
// wants it. workspace: add_rms_norm_workspace(width) floats.
struct AddRmsNormBackward {
  const Bf16* d_normal = nullptr;
  const Bf16* d_sum = nullptr;
  const Bf16* sum = nullptr;
  const Bf16* weight = nullptr;
  const float* inverse = nullptr;
  Bf16* d_x = nullptr;
  float* d_weight = nullptr;
  float* workspace = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
};
int64_t add_rms_norm_workspace(int64_t width);
void add_rms_norm_backward(const AddRmsNormBackward& norm, Stream stream);

}  // namespace vime::gpu
