// What a run will start, where, before anything is started: as a table for people and as JSON for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "arch/parameters.hpp"
#include "base/json.hpp"
#include "placement/placement.hpp"
#include "spec/spec.hpp"

namespace vime::spec {

// What a trainer rank needs. Weights and gradients are those of its shard; the optimizer's state (ZeRO-1; with float32
// weights of its own where training is in another type) is shared by all ranks that hold the same shard: DP x CP of
// them. Work, on GPUs only: activations of the largest micro-batches and what a step needs for a moment.
struct RankMemory {
  uint64_t weights_bytes = 0;
  uint64_t gradients_bytes = 0;
  uint64_t optimizer_bytes = 0;
  uint64_t work_bytes = 0;
  uint64_t total() const { return weights_bytes + gradients_bytes + optimizer_bytes + work_bytes; }
};

// How the layout cuts the model.
struct ModelPlan {
  std::vector<arch::Stage> stages;                // of each pp rank
  std::vector<std::vector<RankMemory>> trainers;  // [pp rank][tp rank]
  uint64_t engine_bytes = 0;  // weights of an engine's first worker, whose share is the largest; no KV cache
};
ModelPlan model_plan(const ExperimentSpec& spec, const arch::ModelConfig& model);

// Lists of more than `most_rows` rows are cut, with a line that says so. Without the model its figures are left out.
std::string plan_table(const ExperimentSpec& spec, const placement::Plan& plan,
                       const std::optional<ModelPlan>& model = {}, size_t most_rows = 32);

// The same facts, uncut; keys and their order are stable, and figures that need the model are null without it. Devices
// carry their UUID when `with_uuids` (they depend on the run id).
Json plan_json(const ExperimentSpec& spec, const placement::Plan& plan, const std::optional<ModelPlan>& model,
               bool with_uuids);

}  // namespace vime::spec
