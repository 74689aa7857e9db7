#include "spec/plan_view.hpp"

#include <algorithm>
#include <vector>

#include "arch/training_memory.hpp"
#include "base/strings.hpp"
#include "spec/placement_request.hpp"

namespace vime::spec {
namespace {

const char* const kPorts = "chosen by the kernel at start";

using Rows = std::vector<std::vector<std::string>>;

std::string text(int64_t number) {
  return std::to_string(number);
}

std::string counted(int64_t number, const std::string& noun) {
  return text(number) + " " + noun + (number == 1 ? "" : "s");
}

// "device 3", "devices 4-7"
std::string span_text(const std::string& noun, int first, int count) {
  return count == 1 ? noun + " " + text(first) : noun + "s " + text(first) + "-" + text(first + count - 1);
}

// Columns two blanks apart, each line indented by two.
std::string aligned(const Rows& rows, size_t most_rows, const std::string& what) {
  std::vector<size_t> widths;
  const size_t shown = std::min(rows.size(), most_rows);
  for (size_t row = 0; row < shown; ++row) {
    widths.resize(std::max(widths.size(), rows[row].size()));
    for (size_t i = 0; i < rows[row].size(); ++i) widths[i] = std::max(widths[i], rows[row][i].size());
  }
  std::string out;
  for (size_t row = 0; row < shown; ++row) {
    std::string line = " ";
    for (size_t i = 0; i < rows[row].size(); ++i)
      line += " " + rows[row][i] + std::string(widths[i] - rows[row][i].size() + 1, ' ');
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (shown < rows.size())
    out += "  ... and " + counted(static_cast<int64_t>(rows.size() - shown), what) + " more (--json lists all)\n";
  return out;
}

Rows node_rows(const placement::Plan& plan, const std::vector<int64_t>& nodes) {
  std::vector<int64_t> ranks(nodes.size()), workers(nodes.size());
  const auto node_of = [&plan](int device) {
    return static_cast<size_t>(plan.devices[static_cast<size_t>(device)].node);
  };
  for (const placement::TrainerRank& rank : plan.ranks) ++ranks[node_of(rank.device)];
  for (const placement::Engine& engine : plan.engines) {
    for (int device = engine.start; device < engine.start + engine.count; ++device) ++workers[node_of(device)];
  }
  Rows rows;
  int first = 0;
  for (size_t node = 0; node < nodes.size(); ++node) {
    const int count = static_cast<int>(nodes[node]);
    rows.push_back({"node " + text(static_cast<int64_t>(node)), span_text("device", first, count),
                    counted(ranks[node], "trainer rank"), counted(workers[node], "engine worker")});
    first += count;
  }
  return rows;
}

const RankMemory& memory_of(const ModelPlan& model, const placement::TrainerRank& rank) {
  return model.trainers[static_cast<size_t>(rank.pp_rank)][static_cast<size_t>(rank.tp_rank)];
}

// The largest of the ranks that hold one stage, or any.
const RankMemory& largest(const std::vector<RankMemory>& ranks) {
  return *std::max_element(ranks.begin(), ranks.end(),
                           [](const RankMemory& a, const RankMemory& b) { return a.total() < b.total(); });
}

RankMemory largest(const ModelPlan& model) {
  std::vector<RankMemory> of_stages;
  for (const std::vector<RankMemory>& ranks : model.trainers) of_stages.push_back(largest(ranks));
  return largest(of_stages);
}

std::string layers_text(const arch::Stage& stage) {
  return span_text("layer", static_cast<int>(stage.begin), static_cast<int>(stage.end - stage.begin));
}

// The ranks of a stage lie one behind the other.
Rows stage_rows(const placement::Layout& layout, const ModelPlan& model) {
  const int ranks = layout.tp * layout.cp * layout.dp;
  Rows rows;
  for (const arch::Stage& stage : model.stages) {
    rows.push_back({"stage " + text(stage.rank), layers_text(stage), span_text("rank", stage.rank * ranks, ranks),
                    format_bytes(largest(model.trainers[static_cast<size_t>(stage.rank)]).total())});
  }
  return rows;
}

Rows rank_rows(const placement::Plan& plan, const std::optional<ModelPlan>& model) {
  Rows rows;
  for (const placement::TrainerRank& rank : plan.ranks) {
    const placement::Device& device = plan.devices[static_cast<size_t>(rank.device)];
    rows.push_back({"rank " + text(rank.rank), "device " + text(rank.device), "node " + text(device.node),
                    "tp " + text(rank.tp_rank), "pp " + text(rank.pp_rank), "cp " + text(rank.cp_rank),
                    "dp " + text(rank.dp_rank)});
    if (!model) continue;
    rows.back().push_back(layers_text(model->stages[static_cast<size_t>(rank.pp_rank)]));
    rows.back().push_back(format_bytes(memory_of(*model, rank).total()));
  }
  return rows;
}

std::string nodes_text(const placement::Engine& engine) {
  std::vector<std::string> nodes;
  for (const int node : engine.nodes) nodes.push_back(text(node));
  return (nodes.size() == 1 ? "node " : "nodes ") + join(nodes, ",");
}

Rows engine_rows(const ExperimentSpec& spec, const placement::Plan& plan) {
  Rows rows;
  for (const placement::Engine& engine : plan.engines) {
    std::string kind = spec.placement.colocate ? "overflow" : "own devices";
    std::string peers = "from rank 0";
    if (engine.colocated) {
      kind = "colocated";
      peers = "leader rank " + text(engine.start) + " of " + span_text("rank", engine.start, engine.count);
    }
    rows.push_back({"engine " + text(engine.id), span_text("device", engine.start, engine.count), nodes_text(engine),
                    kind, "weights over " + transport_of(spec, engine), peers});
  }
  return rows;
}

// A heading in a column of its own, as wide as the longest.
std::string heading(const std::string& name, const std::string& value) {
  return name + std::string(10 - name.size(), ' ') + value + "\n";
}

std::string layout_text(const placement::Layout& layout) {
  return "TP " + text(layout.tp) + " x PP " + text(layout.pp) + " x CP " + text(layout.cp) + " x DP " + text(layout.dp);
}

std::string batch_text(const ExperimentSpec& spec, const placement::Plan& plan) {
  const int64_t samples = spec.rollout.rollout_batch_size * spec.rollout.n_samples_per_prompt;
  return counted(spec.rollout.num_rollout, "rollout") + " of " + counted(spec.rollout.rollout_batch_size, "prompt") +
         " x " + counted(spec.rollout.n_samples_per_prompt, "sample") + " = " + text(samples) + "; " +
         counted(spec.trainer.num_steps_per_rollout, "step") + " of " + text(spec.trainer.global_batch_size) + ", " +
         text(spec.trainer.global_batch_size / plan.layout.dp) + " for each data-parallel rank";
}

std::string memory_text(const ExperimentSpec& spec, const ModelPlan& model) {
  const RankMemory rank = largest(model);
  return format_bytes(rank.total()) + (rank.work_bytes > 0 ? "" : " of model state") +
         " for the largest trainer rank (weights " + format_bytes(rank.weights_bytes) + ", gradients " +
         format_bytes(rank.gradients_bytes) + ", state of " + spec.trainer.optimizer + " " +
         format_bytes(rank.optimizer_bytes) +
         (rank.work_bytes > 0 ? ", activations and buffers " + format_bytes(rank.work_bytes)
                              : "; activations and buffers come on top") +
         "), " + format_bytes(model.engine_bytes) + " of weights for an engine worker";
}

Json rank_json(const placement::TrainerRank& rank, const std::optional<ModelPlan>& model) {
  Json json{{"rank", rank.rank},  {"device", rank.device}, {"tp", rank.tp_rank},
            {"pp", rank.pp_rank}, {"cp", rank.cp_rank},    {"dp", rank.dp_rank}};
  for (const char* key : {"first_layer", "num_layers", "memory_bytes"}) json[key] = nullptr;
  if (!model) return json;
  const arch::Stage& stage = model->stages[static_cast<size_t>(rank.pp_rank)];
  const RankMemory& memory = memory_of(*model, rank);
  json["first_layer"] = stage.begin;
  json["num_layers"] = stage.end - stage.begin;
  json["memory_bytes"] = {
      {"weights", memory.weights_bytes}, {"gradients", memory.gradients_bytes}, {"optimizer", memory.optimizer_bytes}};
  if (memory.work_bytes > 0) json["memory_bytes"]["work"] = memory.work_bytes;
  return json;
}

}  // namespace

ModelPlan model_plan(const ExperimentSpec& spec, const arch::ModelConfig& model) {
  const Trainer& trainer = spec.trainer;
  const auto pp = static_cast<int>(trainer.pipeline_model_parallel_size);
  const auto engine_devices = static_cast<int>(spec.placement.rollout_num_gpus_per_engine);
  const int64_t ranks = spec.placement.actor_num_nodes * spec.placement.actor_num_gpus_per_node;
  const bool on_gpus = spec.placement.device == "cuda";
  arch::TrainingWork work;
  work.dtype = tensor::parse_dtype_name(trainer.dtype);
  work.tp_size = static_cast<int>(trainer.tensor_model_parallel_size);
  work.sharers = static_cast<int>(ranks / (work.tp_size * pp));
  work.moments = trainer.optimizer == "adam" ? 2 : 0;
  work.cp_size = static_cast<int>(trainer.context_parallel_size);
  work.reference = spec.algorithm.kl_loss_coef != 0.0;
  work.tokens = trainer.max_tokens_per_gpu;
  work.recompute = arch::parse_recompute(trainer.recompute_granularity);
  ModelPlan plan;
  for (int pp_rank = 0; pp_rank < pp; ++pp_rank) {
    work.stage = plan.stages.emplace_back(arch::stage_of(model, pp_rank, pp));
    work.in_flight = pp - pp_rank;  // what 1F1B holds at most
    std::vector<RankMemory>& memory = plan.trainers.emplace_back();
    for (work.tp_rank = 0; work.tp_rank < work.tp_size; ++work.tp_rank) {
      const arch::TrainingMemory of = arch::training_memory(model, work);
      memory.push_back({of.weights, of.gradients, of.master + of.moments,
                        on_gpus ? of.sums + of.activations + of.transient + of.libraries : 0});
    }
  }
  plan.engine_bytes = arch::arena_layout(model, work.dtype, 0, engine_devices).total_bytes;
  return plan;
}

std::string plan_table(const ExperimentSpec& spec, const placement::Plan& plan, const std::optional<ModelPlan>& model,
                       size_t most_rows) {
  const auto devices = static_cast<int64_t>(plan.devices.size());
  const auto ranks = static_cast<int64_t>(plan.ranks.size());
  const auto engines = static_cast<int64_t>(plan.engines.size());
  std::string out = heading("plan", spec.name);
  const int64_t per_gpu = spec.placement.devices_per_gpu;
  const char* const kind = spec.placement.device != "cuda" ? "virtual CPU device" : per_gpu == 1 ? "GPU" : "device";
  out += "\n" + heading("devices", counted(devices, kind) +
                                       (per_gpu == 1 ? "" : ", up to " + std::to_string(per_gpu) + " on each GPU,") +
                                       " on " + counted(static_cast<int64_t>(spec.placement.nodes.size()), "node"));
  out += aligned(node_rows(plan, spec.placement.nodes), most_rows, "node");
  out += "\n" + heading("trainer", counted(ranks, "rank") + ", " + layout_text(plan.layout) + ", " +
                                       spec.trainer.dtype + ", " + spec.trainer.optimizer);
  if (model && plan.layout.pp > 1) out += aligned(stage_rows(plan.layout, *model), most_rows, "stage");
  out += aligned(rank_rows(plan, model), most_rows, "rank");
  out += "\n" + heading("engines", counted(engines, "engine") + " of " +
                                       counted(spec.placement.rollout_num_gpus_per_engine, "device") + ", " +
                                       spec.engine.backend);
  out += aligned(engine_rows(spec, plan), most_rows, "engine");
  out += "\n" + heading("batches", batch_text(spec, plan));
  if (model) out += heading("memory", memory_text(spec, *model));
  out += heading("ports", kPorts);
  return out;
}

Json plan_json(const ExperimentSpec& spec, const placement::Plan& plan, const std::optional<ModelPlan>& model,
               bool with_uuids) {
  Json devices = Json::array(), ranks = Json::array(), engines = Json::array();
  for (const placement::Device& device : plan.devices) {
    Json one{{"device", device.global}, {"node", device.node}, {"index", device.index}};
    if (with_uuids) one["uuid"] = device.uuid;
    devices.push_back(std::move(one));
  }
  for (const placement::TrainerRank& rank : plan.ranks) ranks.push_back(rank_json(rank, model));
  for (const placement::Engine& engine : plan.engines) {
    const Json leader = engine.colocated ? Json(engine.start) : Json(nullptr);
    engines.push_back({{"engine", engine.id},
                       {"first_device", engine.start},
                       {"num_devices", engine.count},
                       {"nodes", engine.nodes},
                       {"colocated", engine.colocated},
                       {"leader", leader},
                       {"transport", transport_of(spec, engine)}});
  }
  const placement::Layout& layout = plan.layout;
  return {{"name", spec.name},
          {"device", spec.placement.device},
          {"nodes", spec.placement.nodes},
          {"devices_per_gpu", spec.placement.devices_per_gpu},
          {"devices", devices},
          {"layout", {{"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}, {"dp", layout.dp}}},
          {"ranks", ranks},
          {"engines", engines},
          {"batch",
           {{"num_rollout", spec.rollout.num_rollout},
            {"samples_per_rollout", spec.rollout.rollout_batch_size * spec.rollout.n_samples_per_prompt},
            {"steps_per_rollout", spec.trainer.num_steps_per_rollout},
            {"global_batch_size", spec.trainer.global_batch_size},
            {"samples_per_rank", spec.trainer.global_batch_size / layout.dp}}},
          {"memory_bytes",
           model ? Json{{"trainer_rank", largest(*model).total()}, {"engine_worker_weights", model->engine_bytes}}
                 : Json(nullptr)},
          {"ports", kPorts}};
}

}  // namespace vime::spec
