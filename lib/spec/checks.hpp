// What no single key can decide: values derived from other keys, and the checks across keys and sections. All of them
// stand in checks.cpp, those of batch sizes, layout, data, evaluation and model in files of their own.
#pragma once

#include <optional>
#include <string>

#include "arch/model_config.hpp"
#include "devices/devices.hpp"
#include "spec/problems.hpp"
#include "spec/spec.hpp"

namespace vime::spec {

// What derived values and checks know of the machine.
struct Machine {
  devices::Inventory found;         // its GPUs
  std::string cpu_taken = "";       // why device auto became cpu, for refusals that follow from it; "" where it did not
  devices::Inventory devices = {};  // several on a GPU where the spec says so; worked out by derive_machine()
};

// Fills every field that was not given and depends on others. Idempotent: a resolved spec stays as it is.
void derive_values(ExperimentSpec& spec, const Problems& problems, Machine& machine);

// Adds every contradiction to `problems`; a check whose keys are wrong already is left out.
void check_spec(const ExperimentSpec& spec, Problems& problems, const Machine& machine);

// machine_checks.cpp: the kind of devices, which GPUs, and what follows from the kind.
void derive_machine(ExperimentSpec& spec, const Problems& problems, Machine& machine);
void check_machine(const ExperimentSpec& spec, Problems& problems, const Machine& machine);
// "; placement.device auto took the CPU: this machine has 1 GPU, 2 are needed", behind what is refused on the CPU only.
std::string cpu_reason(const Machine& machine);

// engine_checks.cpp: which engines, and what each kind needs.
void derive_engine(ExperimentSpec& spec, const Problems& problems);
void check_engine(const ExperimentSpec& spec, Problems& problems);

// batch_checks.cpp: the samples of a rollout are cut evenly into steps, and steps into data-parallel ranks.
void derive_batches(ExperimentSpec& spec, const Problems& problems);
void check_batches(const ExperimentSpec& spec, Problems& problems);

// reward_checks.cpp: the kind of reward and what it needs.
void derive_reward(Reward& reward, const Problems& problems);
void check_reward(const ExperimentSpec& spec, Problems& problems);

// training_checks.cpp: the learning-rate schedule, the kind of loss, the debug modes.
void derive_training(ExperimentSpec& spec, const Problems& problems);
void check_training(const ExperimentSpec& spec, Problems& problems);

// eval_checks.cpp: the short form of one data set becomes an entry of the list, and entries take what they leave out
// from the keys of the section; every entry can be told apart and sampled.
void derive_eval(ExperimentSpec& spec, const Problems& problems);
void check_eval(const ExperimentSpec& spec, Problems& problems);

// data_checks.cpp: every source of prompts is a known data set or a file that can be read; paths become absolute.
void derive_data(ExperimentSpec& spec, const Problems& problems);
void check_data(const ExperimentSpec& spec, Problems& problems);

// model_checks.cpp: the model exists, vime can run it, and it takes the longest sample. Returns it, if it can be read.
std::optional<arch::ModelConfig> check_model(const ExperimentSpec& spec, Problems& problems);

// layout_checks.cpp: trainer ranks and engine workers can share the model as the spec says. Without a model only the
// numbers of ranks are held against each other.
void check_layout(const ExperimentSpec& spec, const std::optional<arch::ModelConfig>& model, Problems& problems);

}  // namespace vime::spec
