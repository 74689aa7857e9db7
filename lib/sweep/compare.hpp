// A leg's optimizer step against the baseline's: every element of every gradient and weight on every rank (copies
// included), every log-prob, loss and gradient norm. Pure; comparisons are written so that a NaN fails them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sweep/check.hpp"
#include "sweep/record.hpp"
#include "sweep/tolerances.hpp"

namespace vime::sweep {

struct CompareOptions {
  Tolerances tolerances;
  double lr = 0.0;                        // of this step
  std::vector<int64_t> response_lengths;  // [samples] of the batch, to name tokens by
  // Of the type that weights are kept in beside their float32 master copy: the distance of neighbouring numbers, over
  // the power of two below them; 0 where there is no such type. Two masters that all but agree may round to neighbours,
  // so that much is no difference.
  double weight_spacing = 0.0;
};

// What a parameter's differences are divided by: the largest size of its gradient's elements, but never less than
// kGradientFloor of `largest`, which is that of the whole model.
double gradient_scale(const std::vector<float>& gradient, double largest);

inline constexpr double kBfloat16Spacing = 1.0 / 128;

// "coverage", "grad_norm", "gradients", "loss", "logprobs" and "weights".
std::vector<Check> compare_step(const StepRecord& baseline, const StepRecord& leg, const CompareOptions& options);

// "engine_logprobs": what one engine says of the batch's sequences after the push, [samples][tokens - 1], against the
// trainer's log-probs of the responses after the step.
Check compare_engine(const StepRecord& baseline, int engine, const std::vector<std::vector<double>>& logprobs,
                     const CompareOptions& options);

// What makes a baseline useless, since legs that are wrong in the same way would agree with it: figures that are not
// finite, a gradient of 0. "" when it is sound.
std::string baseline_problem(const StepRecord& baseline);

}  // namespace vime::sweep
