// What a run will start, where, before anything is started: as a table for people and as JSON for programs.
#pragma once

#include <optional>
#include <string>

#include "arch/model_config.hpp"
#include "base/json.hpp"
#include "placement/placement.hpp"
#include "spec/spec.hpp"

namespace vime::spec {

// What a device must hold for the whole run, without activations and KV cache.
struct DeviceMemory {
  uint64_t trainer_bytes = 0;  // weights, gradients and AdamW's two moments of one rank
  uint64_t engine_bytes = 0;   // weights of the engine's first worker, whose share is the largest
};
DeviceMemory device_memory(const ExperimentSpec& spec, const arch::ModelConfig& model);

// Lists of more than `most_rows` rows are cut, with a line that says so. Without the memory its line is left out.
std::string plan_table(const ExperimentSpec& spec, const placement::Plan& plan,
                       const std::optional<DeviceMemory>& memory = {}, size_t most_rows = 64);

// The same facts, uncut; keys and their order are stable. Devices carry their UUID when `with_uuids` (they depend on
// the run id).
Json plan_json(const ExperimentSpec& spec, const placement::Plan& plan, const std::optional<DeviceMemory>& memory,
               bool with_uuids);

}  // namespace vime::spec
