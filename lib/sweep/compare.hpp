// A leg's optimizer step against the baseline's: every element of every gradient and weight on every rank (copies
// included), by the figures that the ranks have worked out, every log-prob, loss and gradient norm. Pure; comparisons
// are written so that a NaN fails them.
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
};

// The largest size of a gradient's element, over all parameters.
double largest_gradient(const StepRecord& baseline);
// What a parameter's differences are divided by: the largest size of its gradient's elements, but never less than
// kGradientFloor of the model's.
double gradient_scale(double largest_of_parameter, double largest_of_model);

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
