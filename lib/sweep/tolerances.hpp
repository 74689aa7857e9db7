// How far a leg may be from the baseline. Both compute the same sums in another order; what that costs depends on the
// type of the arithmetic.
#pragma once

#include <string>

namespace vime::sweep {

struct Tolerances {
  double grad_norm = 0.0;  // relative
  double gradient = 0.0;   // relative to the parameter's largest element, see gradient_scale()
  double loss = 0.0;       // absolute: a mean of terms of about 1, which may cancel to 0
  double logprob = 0.0;    // absolute; the engines' too
  double weight = 0.0;     // in units of the learning rate
};

// dtype: trainer.dtype, "float32" or "bfloat16".
Tolerances tolerances_for(const std::string& dtype);

// The share of the largest gradient element of the whole model below which a parameter's own largest element is no
// measure any more. A gradient that is 0 in exact arithmetic (a key bias: attention does not see it) is what is left of
// terms as large as other parameters' gradients, each wrong by a rounding; held against itself it would always differ.
// With this floor float32 allows it 1e-2 x 1e-4 = 1e-6 of the model's largest element, some ten roundings. A wrong sign
// or a factor is still found in any parameter whose elements reach that size.
inline constexpr double kGradientFloor = 1e-2;

}  // namespace vime::sweep
