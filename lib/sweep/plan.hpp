// What a sweep would do, worked out and checked without starting or writing anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loop/prepare.hpp"
#include "spec/load.hpp"
#include "spec/spec.hpp"
#include "sweep/leg_spec.hpp"
#include "sweep/legs.hpp"

namespace vime::sweep {

struct SweepRequest {
  std::string config;                  // "": the built-in spec
  std::vector<std::string> overrides;  // of --set
  std::string device = "cpu";          // or "cuda"
  std::string dtype;                   // "float32", "bfloat16"; "": the device's
  spec::FindGpus find_gpus;            // asked for "cuda" only
  int devices_per_gpu = 1;             // likewise; at most devices::kMostPerGpu
  LegSizes sizes;
  // Sizes that the user has asked for are refused where the model cannot be cut so; the usual ones are left out.
  bool num_gpus_given = false;
  bool tp_given = false;
  bool pp_given = false;
  LegFilter only;
  int gpus_per_engine = 2;
  std::optional<int> jobs;  // default: default_jobs() of jobs.hpp
};

struct SweepPlan {
  std::string config;
  std::vector<std::string> overrides;
  spec::ExperimentSpec base;
  std::vector<Leg> legs;
  std::vector<std::string> left_out;  // "PP 4 (2 layers)": usual sizes that the model cannot be cut into
  LegSettings settings;               // without a samples folder
  int jobs = 1;                       // legs that run at the same time
  devices::Inventory machine;         // where legs run on GPUs
  loop::Prepared prepared;            // of the baseline; what legs have in common is read once
};

// Error{refused} for whatever no leg can work with, for a model that some of the legs cannot cut, and for engines that
// do not fit: nothing of a sweep is run that could have been refused before.
SweepPlan plan_sweep(const SweepRequest& request, const std::string& run_id);

// For one leg, or a baseline: a leg without engines. On GPUs: those from `first_device` on.
loop::Prepared prepare_leg(const SweepPlan& plan, const Leg& leg, bool engines, const std::string& samples_folder,
                           size_t first_device = 0);

// The losses that the legs have, each once.
std::vector<Loss> losses_of(const std::vector<Leg>& legs);

}  // namespace vime::sweep
