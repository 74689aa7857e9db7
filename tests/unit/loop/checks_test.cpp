#include "loop/checks.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace vime::loop;

namespace {

const CheckLimits kLimits{1e-6, 1e-4};

StepCheckInput good() {
  StepCheckInput input;
  input.grad_norm = 1.5;
  input.loss = -0.25;
  input.train_rollout_logprob_abs_diff = 1e-7;
  return input;
}

bool finds(const StepCheckInput& input, const std::string& part) {
  const auto problems = step_problems(input, kLimits);
  return problems.size() == 1 && problems[0].find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a sound step has no problems") {
  CHECK(step_problems(good(), kLimits).empty());
}

TEST_CASE("first-step KL is checked on both sides, and where signed terms cancel") {
  StepCheckInput input = good();
  input.ppo_kl = 2e-6;
  CHECK(finds(input, "KL of the first step is not zero"));
  input.ppo_kl = -2e-6;
  CHECK(finds(input, "KL of the first step is not zero"));
  input.ppo_kl = 0.0;
  input.ppo_kl_abs = 2e-6;
  CHECK(finds(input, "mean magnitude 2e-06"));
  input.ppo_kl_abs = std::nan("");
  CHECK(finds(input, "KL of the first step"));
}

TEST_CASE("later steps of a rollout may have a KL") {
  StepCheckInput input = good();
  input.step_of_rollout = 1;
  input.ppo_kl = 0.1;
  input.ppo_kl_abs = 0.2;
  CHECK(step_problems(input, kLimits).empty());
}

TEST_CASE("a log-prob gap at or above the limit is a problem, a NaN too") {
  StepCheckInput input = good();
  input.train_rollout_logprob_abs_diff = 1e-4;
  CHECK(finds(input, "trainer and engine disagree"));
  input.train_rollout_logprob_abs_diff = std::nan("");
  CHECK(finds(input, "trainer and engine disagree"));
}

TEST_CASE("a gradient norm or loss that is not finite is a problem") {
  StepCheckInput input = good();
  input.grad_norm = std::numeric_limits<double>::infinity();
  CHECK(finds(input, "gradients are not finite"));
  input = good();
  input.loss = std::nan("");
  CHECK(finds(input, "loss is not finite"));
}

TEST_CASE("a reference model that is not the model training begins with is found on the first step") {
  StepCheckInput input = good();
  ChecksOn on;
  on.reference_is_start = true;
  CHECK(step_problems(input, kLimits, on).empty());
  input.kl_loss = -3e-6;
  REQUIRE(step_problems(input, kLimits, on).size() == 1);
  CHECK(step_problems(input, kLimits, on)[0].find("KL to the reference model is not zero") == 0);
  input.kl_loss = std::nan("");
  CHECK(step_problems(input, kLimits, on).size() == 1);
  CHECK(step_problems(input, kLimits).empty());  // later rollouts move away from it
  input.step_of_rollout = 1;
  CHECK(step_problems(input, kLimits, on).empty());
}

TEST_CASE("what there is nothing to compare with is not checked") {
  StepCheckInput input = good();
  input.train_rollout_logprob_abs_diff = 3.0;
  input.ppo_kl_abs = 2.0;
  CHECK(step_problems(input, kLimits).size() == 2);
  ChecksOn on;
  on.engine_gap = on.first_step_kl = false;
  CHECK(step_problems(input, kLimits, on).empty());
  input.loss = std::nan("");
  CHECK(step_problems(input, kLimits, on).size() == 1);
}
