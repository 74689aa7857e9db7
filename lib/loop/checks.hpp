// The self-checks of a run, as pure functions: each returns one sentence per fault, and nothing when all is well.
// With --ci-test a fault ends the run with exit status 3; otherwise it is a warning and a metric.
#pragma once

#include <string>
#include <vector>

namespace vime::loop {

struct CheckLimits {
  double kl_tolerance =
      1e-6;  // |log-prob difference| on the first step of a rollout, where both come from the same weights
  double logprob_gap_tolerance =
      1e-4;  // mean |trainer's - engine's log-prob| of the same tokens under the same weights
};

// Figures of one optimizer step, summed over the ranks.
struct StepCheckInput {
  int step_of_rollout = 0;
  double ppo_kl = 0.0;
  double ppo_kl_abs = 0.0;
  double train_rollout_logprob_abs_diff = 0.0;
  double grad_norm = 0.0;
  double loss = 0.0;
};

// First-step KL (two-sided: signed terms can cancel, so the mean magnitude is held to the limit too), trainer-vs-engine
// gap, and finite loss and gradients. Every comparison is written so that a NaN fails it.
std::vector<std::string> step_problems(const StepCheckInput& input, const CheckLimits& limits);

}  // namespace vime::loop
