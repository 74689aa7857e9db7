// The spec of one leg, from the base spec: model, algorithm, transport and micro-batches stay; layout, placement, loss
// normalisation, samples and optimizer are the leg's. Pure.
#pragma once

#include <string>

#include "spec/spec.hpp"
#include "sweep/legs.hpp"

namespace vime::sweep {

struct LegSettings {
  int gpus_per_engine = 2;
  std::string device = "cpu";             // or "cuda"
  std::vector<std::string> device_uuids;  // of GPUs that legs may use, or shares of them; a leg takes the first ones
  int devices_per_gpu = 1;
  std::string dtype = "float32";
  std::string recompute_granularity = "none";
  int64_t samples = 16;        // of one rollout
  std::string samples_folder;  // with rollout_000000.safetensors and so on, as debug.load_rollout takes it
};

spec::ExperimentSpec leg_spec(const spec::ExperimentSpec& base, const Leg& leg, const LegSettings& settings);

// Error{refused} for a base spec that a sweep cannot be made from.
void check_base(const spec::ExperimentSpec& base);

}  // namespace vime::sweep
