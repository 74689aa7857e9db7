// How far a leg may be from the baseline. Both compute the same sums in another order; what that costs depends on the
// type of the arithmetic.
#pragma once

namespace vime::sweep {

struct Tolerances {
  double grad_norm = 0.0;  // relative
  double gradient = 0.0;   // relative to the parameter's largest element, see gradient_scale()
  double loss = 0.0;       // absolute: a mean of terms of about 1, which may cancel to 0
  double logprob = 0.0;    // absolute; the engines' too
  double weight = 0.0;     // in units of the learning rate
};

// Of a step in float32 whose largest |log-prob| of a response token is `largest_logprob`, before or after the step.
//
// A log-prob is a logit less the logarithm of a sum over all of them, and a logit is rounded relative to its own size,
// so a sharp model, which finds some tokens all but impossible, is wrong by more: float32 rounds numbers from 8 to 16
// to 5e-7, numbers around 100 to 4e-6. A fixed 1e-5 is some twenty roundings of the first and hardly three of the
// second. Up to 10, as of the built-in model and of any that is still random, the tolerance is 1e-5; from there on it
// grows in proportion. A fault in a layout moves log-probs by a share of their size, of which this is 1e-6.
//
// The step turns a difference of gradients into one of weights. After clipping no element is above 1, so SGD makes 1e-4
// of a gradient at most 1e-4 learning rates; Adam with eps 1e-2 makes noise of 1e-7, which is what there is, 1e-5
// learning rates.
Tolerances float32_tolerances(double largest_logprob);

// The largest errors that one process made in bfloat16, held against the same process in float32 with weights that are
// rounded as its own (StepProbe::round_weights). `gradients` is that
// of the whole gradient: the norm of the difference over the norm.
struct Noise {
  double gradients = 0.0;
  double gradient = 0.0;
  double logprob = 0.0;
  double weight = 0.0;
};

// Of a step in bfloat16. A rounding is 2^-9 there, and how far many of them carry depends on the model: its depth, its
// sizes, its weights. So it is measured. A layout rounds in other places: it draws anew from the same noise. Where the
// largest error of one draw is e, another's may be twice that, and the two are off from each other by at most the sum,
// 3 e. The norm of a gradient is off by at most the norm of the difference, a loss by at most its terms' log-probs.
// Never less than `exact`, those of the step in float32.
Tolerances bfloat16_tolerances(const Noise& noise, const Tolerances& exact);

// "" where the noise is small enough to tell a fault from it; a layout that is wrong is off by its own size, since it
// has a part twice or not at all.
const char* too_noisy(const Noise& noise);

// The share of the largest gradient element of the whole model below which a parameter's own largest element is no
// measure any more. A gradient that is 0 in exact arithmetic (a key bias: attention does not see it) is what is left of
// terms as large as other parameters' gradients, each wrong by a rounding; held against itself it would always differ.
// With this floor float32 allows it 1e-2 x 1e-4 = 1e-6 of the model's largest element, some ten roundings. A wrong sign
// or a factor is still found in any parameter whose elements reach that size.
inline constexpr double kGradientFloor = 1e-2;

// rollout::StepProbe::weight_spacing of weights in bfloat16.
inline constexpr double kBfloat16Spacing = 1.0 / 128;

}  // namespace vime::sweep
