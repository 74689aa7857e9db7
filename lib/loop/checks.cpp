#include "loop/checks.hpp"

#include <cmath>

#include "base/strings.hpp"

namespace vime::loop {

std::vector<std::string> step_problems(const StepCheckInput& input, const CheckLimits& limits, const ChecksOn& on) {
  std::vector<std::string> problems;
  if (!std::isfinite(input.grad_norm)) {
    problems.push_back("gradients are not finite: norm " + format_number(input.grad_norm));
  }
  if (!std::isfinite(input.loss)) problems.push_back("loss is not finite: " + format_number(input.loss));
  // Only the first step of a rollout trains at the weights that its old log-probs were computed with.
  if (input.step_of_rollout == 0 && on.first_step_kl) {
    const bool small = std::fabs(input.ppo_kl) < limits.kl_tolerance && input.ppo_kl_abs < limits.kl_tolerance;
    if (!small) {
      problems.push_back("KL of the first step is not zero: mean " + format_number(input.ppo_kl) + ", mean magnitude " +
                         format_number(input.ppo_kl_abs) + ", limit " + format_number(limits.kl_tolerance) +
                         "; recomputed and training log-probs come from different weights or inputs");
    }
  }
  if (input.step_of_rollout == 0 && on.reference_is_start && !(std::fabs(input.kl_loss) < limits.kl_tolerance)) {
    problems.push_back("KL to the reference model is not zero before the first step: " + format_number(input.kl_loss) +
                       ", limit " + format_number(limits.kl_tolerance) +
                       "; the reference is not the model that training begins with");
  }
  if (on.engine_gap && !(input.train_rollout_logprob_abs_diff < limits.logprob_gap_tolerance)) {
    problems.push_back("trainer and engine disagree: mean log-prob difference " +
                       format_number(input.train_rollout_logprob_abs_diff) + ", limit " +
                       format_number(limits.logprob_gap_tolerance) +
                       "; the engine ran other weights, other tokens or another temperature");
  }
  return problems;
}

}  // namespace vime::loop
