#include "sweep/baseline.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "sweep/check.hpp"
#include "sweep/compare.hpp"

namespace vime::sweep {
namespace {

double error_of(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.name == name; });
  VIME_CHECK(found != checks.end(), "no check of " + name);
  return found->error;
}

// Over all parameters: the norm of the difference, over the norm.
double relative_distance(const StepRecord& one) {
  double difference = 0.0, size = 0.0;
  for (const ShardRecord& parameter : one.ranks.front().shards) {
    difference += parameter.gradient.difference_squares;
    size += parameter.gradient.squares;
  }
  return std::sqrt(difference / size);
}

}  // namespace

double largest_logprob(const StepRecord& baseline) {
  double largest = 0.0;
  const RankRecord& whole = baseline.ranks.front();
  for (const std::vector<double>* values : {&whole.logprobs, &whole.logprobs_after}) {
    for (const double value : *values) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

Noise noise_between(const StepRecord& rounded, const StepRecord& exact, double lr) {
  CompareOptions options;
  options.lr = lr;
  options.response_lengths = {static_cast<int64_t>(exact.ranks.front().logprobs.size())};
  // The differences in the exact record are the other's as well.
  StepRecord found = exact;
  found.ranks.front().logprobs = rounded.ranks.front().logprobs;
  found.ranks.front().logprobs_after = rounded.ranks.front().logprobs_after;
  const std::vector<Check> checks = compare_step(exact, found, options);
  return {.gradients = relative_distance(exact),
          .gradient = error_of(checks, "gradients"),
          .logprob = error_of(checks, "logprobs"),
          .weight = error_of(checks, "weights")};
}

std::vector<rollout::StepProbe> probes_beside(const std::vector<fs::path>& files) {
  std::vector<rollout::StepProbe> probes;
  for (const fs::path& file : files) {
    probes.push_back({.against = file.string(), .weight_spacing = kBfloat16Spacing, .round_weights = true});
  }
  return probes;
}

Baseline float32_baseline(std::vector<StepRecord> steps) {
  Baseline baseline;
  for (const StepRecord& step : steps) baseline.tolerances.push_back(float32_tolerances(largest_logprob(step)));
  baseline.steps = std::move(steps);
  return baseline;
}

Baseline bfloat16_baseline(std::vector<StepRecord> steps, const std::vector<StepRecord>& exact, double lr) {
  Baseline baseline;
  baseline.weight_spacing = kBfloat16Spacing;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Noise noise = noise_between(steps[i], exact.at(i), lr);
    if (const std::string what = too_noisy(noise); !what.empty()) {
      throw Error(ErrorKind::check_failed, "step " + std::to_string(steps[i].step) + ": " + what +
                                               " in bfloat16 are too far from those in float32 (" +
                                               error_text(noise.gradient) + " of a gradient, " +
                                               error_text(noise.logprob) +
                                               " of a log-prob); nothing can be held against it");
    }
    baseline.tolerances.push_back(bfloat16_tolerances(noise, float32_tolerances(largest_logprob(exact[i]))));
  }
  baseline.steps = std::move(steps);
  return baseline;
}

}  // namespace vime::sweep
