// How far a leg may be from the baseline. Both compute the same sums in another order; what that costs depends on the
// type of the arithmetic.
#pragma once

#include <string>

namespace vime::sweep {

struct Tolerances {
  double grad_norm = 0.0;  // relative
  double gradient = 0.0;   // relative to the parameter's largest element, see gradient_scale()
  double loss = 0.0;       // absolute: a mean of terms of about 1, which may cancel to 0
  double logprob = 0.0;    // absolute, of a flat model; the engines' too; see logprob_tolerance()
  double weight = 0.0;     // in units of the learning rate
};

// dtype: trainer.dtype, "float32" or "bfloat16".
Tolerances tolerances_for(const std::string& dtype);

// How far a log-prob may be from the baseline's in a step whose largest |log-prob| of a response token is `largest`,
// before or after the step. A log-prob is a logit less the logarithm of a sum over all of them, and a logit is rounded
// relative to its own size, so a sharp model, which finds some tokens all but impossible, is wrong by more: float32
// rounds numbers from 8 to 16 to 5e-7, numbers around 100 to 4e-6. A fixed 1e-5 is some twenty roundings of the first
// and hardly three of the second. Up to 10, as of the built-in model and of any that is still random, the tolerance is
// `logprob`; from there on it grows in proportion. A fault in a layout moves log-probs by a share of their size, of
// which this is 1e-6.
double logprob_tolerance(const Tolerances& tolerances, double largest);

// The share of the largest gradient element of the whole model below which a parameter's own largest element is no
// measure any more. A gradient that is 0 in exact arithmetic (a key bias: attention does not see it) is what is left of
// terms as large as other parameters' gradients, each wrong by a rounding; held against itself it would always differ.
// With this floor float32 allows it 1e-2 x 1e-4 = 1e-6 of the model's largest element, some ten roundings. A wrong sign
// or a factor is still found in any parameter whose elements reach that size.
inline constexpr double kGradientFloor = 1e-2;

}  // namespace vime::sweep
