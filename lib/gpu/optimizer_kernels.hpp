// AdamW (Loshchilov and Hutter 2019, algorithm 2, the decay scaled by the learning rate as PyTorch does) over flat
// buffers in one pass, and the sum of squares that clipping needs. Nothing blocks: kernels are queued on `stream`; the
// same bits every time.
#pragma once

#include <cstdint>

#include "gpu/element.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

struct AdamwStep {
  float lr = 0;
  float beta1 = 0, beta2 = 0, eps = 0;
  float correction1 = 1, correction2 = 1;  // 1 - beta^t of the moments
  float gradient_scale = 1;                // clipping
};

// Weight decay of the elements from the end of the range before up to `end`.
struct DecayRange {
  int64_t end = 0;
  float decay = 0;
};

// All on the device, [count] each. With g = gradient_scale * gradient:
//   exp_avg = beta1 exp_avg + (1 - beta1) g;  exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g^2
//   master = master (1 - lr decay) - lr / correction1 * exp_avg / (sqrt(exp_avg_sq / correction2) + eps)
// `weight` gets the master rounded to bf16 and may be null. ranges: on the host, read before the call returns; in
// order, none empty, the last one's end >= count; `range_count` 0 means no decay.
struct AdamwState {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* gradient = nullptr;
  Bf16* weight = nullptr;
  int64_t count = 0;
};
void adamw(const AdamwState& state, const AdamwStep& step, const DecayRange* ranges, int64_t range_count,
           Stream stream);

// Adds the sum of squares to *result, in float64 throughout and in an order that `count` alone decides. workspace:
// kSquareSums doubles on the device.
constexpr int64_t kSquareSums = 1024;
void add_sum_of_squares(const float* values, int64_t count, double* workspace, double* result, Stream stream);

}  // namespace vime::gpu
