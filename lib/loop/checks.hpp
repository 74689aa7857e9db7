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

// Which of the checks there is something to check for.
struct ChecksOn {
  bool first_step_kl = true;        // not for supervised training: it has no old policy
  bool engine_gap = true;           // not where samples were loaded or labels are trained on
  bool reference_is_start = false;  // the reference model is what training begins with, and this is the first rollout
};

// Figures of one optimizer step, summed over the ranks.
struct StepCheckInput {
  int step_of_rollout = 0;
  double ppo_kl = 0.0;
  double ppo_kl_abs = 0.0;
  double kl_loss = 0.0;  // to the reference model
  double train_rollout_logprob_abs_diff = 0.0;
  double grad_norm = 0.0;
  double loss = 0.0;
};

// First-step KL (two-sided: signed terms can cancel, so the mean magnitude is held to the limit too), the same for a
// reference model that is still the policy itself, trainer-vs-engine gap, and finite loss and gradients. Every
// comparison is written so that a NaN fails it.
std::vector<std::string> step_problems(const StepCheckInput& input, const CheckLimits& limits, const ChecksOn& on = {});

}  // namespace vime::loop
