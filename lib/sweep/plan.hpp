// What a sweep would do, worked out and checked without starting or writing anything.
#pragma once

#include <string>
#include <vector>

#include "loop/prepare.hpp"
#include "spec/spec.hpp"
#include "sweep/leg_spec.hpp"
#include "sweep/legs.hpp"

namespace vime::sweep {

struct SweepRequest {
  spec::ExperimentSpec base;
  LegSizes sizes;
  LegFilter only;
  int gpus_per_engine = 2;
};

struct SweepPlan {
  spec::ExperimentSpec base;
  std::vector<Leg> legs;
  LegSettings settings;     // without a samples folder
  loop::Prepared prepared;  // of the baseline; what legs have in common is read once
};

// Error{refused} for whatever no leg can work with, for a model that some of the legs cannot cut, and for engines that
// do not fit: nothing of a sweep is run that could have been refused before.
SweepPlan plan_sweep(const SweepRequest& request, const std::string& run_id);

// For one leg, or a baseline: a leg without engines.
loop::Prepared prepare_leg(const SweepPlan& plan, const Leg& leg, bool engines, const std::string& samples_folder);

// The losses that the legs have, each once.
std::vector<Loss> losses_of(const std::vector<Leg>& legs);

}  // namespace vime::sweep
