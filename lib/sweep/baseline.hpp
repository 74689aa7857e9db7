// What legs are held against: the steps of a single process, and how far from them a leg may be. Pure.
#pragma once

#include <vector>

#include "base/files.hpp"
#include "rollout/step_probe.hpp"
#include "sweep/record.hpp"
#include "sweep/tolerances.hpp"

namespace vime::sweep {

struct Baseline {
  std::vector<StepRecord> steps;
  std::vector<fs::path> files;         // that its gradients and weights are in, by step
  double weight_spacing = 0.0;         // that a leg's ranks are asked with (rollout::StepProbe)
  std::vector<Tolerances> tolerances;  // by step
};

// The largest |log-prob| of a response token, before or after the step.
double largest_logprob(const StepRecord& baseline);

// What the float32 process beside a baseline in bfloat16 is asked with, whose steps are in these files.
std::vector<rollout::StepProbe> probes_beside(const std::vector<fs::path>& files);

Baseline float32_baseline(std::vector<StepRecord> steps);

// `exact`: the same steps, by a single process in float32 that has held its own, with rounded weights, against the
// files of `steps`. Error{check_failed} when the two are so far apart that nothing can be told.
Baseline bfloat16_baseline(std::vector<StepRecord> steps, const std::vector<StepRecord>& exact, double lr);

// Of one step; the learning rate is the step's. `exact` as above.
Noise noise_between(const StepRecord& rounded, const StepRecord& exact, double lr);

}  // namespace vime::sweep
