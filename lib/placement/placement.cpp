#include "placement/placement.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"

namespace vime::placement {
namespace {

std::vector<Device> make_devices(const Request& request) {
  std::vector<Device> devices;
  for (size_t node = 0; node < request.nodes.size(); ++node) {
    for (int index = 0; index < request.nodes[node]; ++index) {
      const int node_number = static_cast<int>(node);
      const bool known = devices.size() < request.device_uuids.size();
      devices.push_back(
          {static_cast<int>(devices.size()), node_number, index,
           known ? request.device_uuids[devices.size()] : cpu_device_uuid(request.run_id, node_number, index)});
    }
  }
  return devices;
}

std::vector<Engine> make_engines(const Request& request, const std::vector<Device>& devices, int first_device) {
  std::vector<Engine> engines;
  for (int id = 0; id < request.rollout_num_gpus / request.rollout_num_gpus_per_engine; ++id) {
    Engine engine;
    engine.id = id;
    engine.count = request.rollout_num_gpus_per_engine;
    engine.start = first_device + id * engine.count;
    for (int device = engine.start; device < engine.start + engine.count; ++device) {
      const int node = devices[static_cast<size_t>(device)].node;
      if (engine.nodes.empty() || engine.nodes.back() != node) engine.nodes.push_back(node);
    }
    engines.push_back(std::move(engine));
  }
  return engines;
}

}  // namespace

std::vector<TrainerRank> make_ranks(int count, int tp, int pp, int cp) {
  VIME_CHECK(tp >= 1 && pp >= 1 && cp >= 1 && count % (tp * pp * cp) == 0, "the layout does not divide the ranks");
  const int dp = count / (tp * pp * cp);
  std::vector<TrainerRank> ranks;
  for (int r = 0; r < count; ++r) {
    ranks.push_back({.rank = r,
                     .device = r,
                     .tp_rank = r % tp,
                     .cp_rank = r / tp % cp,
                     .dp_rank = r / (tp * cp) % dp,
                     .pp_rank = r / (tp * cp * dp)});
  }
  return ranks;
}

void mark_colocated(std::vector<Engine>& engines, int trainer_ranks) {
  bool prefix = true;
  for (Engine& engine : engines) {
    prefix = prefix && engine.start >= 0 && engine.start + engine.count <= trainer_ranks;
    engine.colocated = prefix;
  }
}

std::vector<Slot> make_slots(const std::vector<Engine>& engines) {
  std::vector<Slot> slots;
  for (const Engine& engine : engines) {
    if (engine.colocated) slots.push_back({engine.id, engine.start, engine.count});
  }
  return slots;
}

Plan make_plan(const Request& request) {
  std::vector<std::string> reasons;
  for (const Refusal& refusal : refusals(request)) reasons.push_back(refusal.sentence);
  if (!reasons.empty()) throw Error(ErrorKind::refused, join(reasons, "\n"));

  const int trainer_ranks = request.actor_num_nodes * request.actor_num_gpus_per_node;
  const int tp = request.tensor_model_parallel_size, pp = request.pipeline_model_parallel_size,
            cp = request.context_parallel_size;
  Plan plan;
  plan.devices = make_devices(request);
  plan.layout = {.tp = tp, .pp = pp, .cp = cp, .dp = trainer_ranks / (tp * pp * cp)};
  plan.ranks = make_ranks(trainer_ranks, tp, pp, cp);
  plan.engines = make_engines(request, plan.devices, request.colocate ? 0 : trainer_ranks);
  // Without colocation no engine touches the trainer's devices, so the prefix is empty by the same rule.
  mark_colocated(plan.engines, trainer_ranks);
  plan.slots = make_slots(plan.engines);
  for (const Engine& engine : plan.engines) {
    if (!engine.colocated) plan.overflow_engines.push_back(engine.id);
  }
  return plan;
}

std::string cpu_device_uuid(const std::string& run_id, int node, int index) {
  uint64_t run = 0x76696d65ull;
  for (const char c : run_id) run = mix_key(run, static_cast<unsigned char>(c));
  const auto place = (static_cast<uint64_t>(static_cast<uint32_t>(node)) << 32) | static_cast<uint32_t>(index);
  const std::string digits = hex(mix_key(run, place, 1)) + hex(mix_key(run, place, 2));
  return digits.substr(0, 8) + "-" + digits.substr(8, 4) + "-" + digits.substr(12, 4) + "-" + digits.substr(16, 4) +
         "-" + digits.substr(20);
}

}  // namespace vime::placement
