// The devices of this machine: which kind, which GPUs, and what follows from the kind.
#include <algorithm>
#include <set>

#include "base/strings.hpp"
#include "devices/gpu_share.hpp"
#include "spec/checks.hpp"
#include "spec/placement_request.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

std::string text(int64_t number) {
  return std::to_string(number);
}

int64_t trainer_devices(const Placement& placement) {
  return placement.actor_num_nodes * placement.actor_num_gpus_per_node;
}

// Of the engines that lie behind the trainer's devices.
int64_t devices_behind(const Placement& placement) {
  return placement.colocate ? std::max<int64_t>(placement.rollout_num_gpus - trainer_devices(placement), 0)
                            : placement.rollout_num_gpus;
}

// Without an inventory there are as many devices as the job needs, the trainer's nodes first; those of external engines
// are a node of their own.
void derive_nodes(Placement& placement, bool external) {
  const int64_t trainer = trainer_devices(placement);
  const int64_t behind = devices_behind(placement);
  if (trainer + behind > placement::kMaxDevices) {
    placement.nodes = {placement::kMaxDevices};  // too many; the placement room says so
  } else if (placement.actor_num_nodes == 1 && !external) {
    placement.nodes = {trainer + behind};
  } else {
    placement.nodes.assign(static_cast<size_t>(placement.actor_num_nodes), placement.actor_num_gpus_per_node);
    if (behind > 0) placement.nodes.push_back(behind);
  }
}

// Devices of external engines are not this run's to give out.
bool on_one_machine(const ExperimentSpec& spec) {
  return spec.placement.nodes.size() == (spec.engine.backend == "external" ? 2 : 1);
}

std::string there_text(const Machine& machine) {
  return devices::count_text(machine.found.gpus.size(), machine.devices.gpus.size());
}

// Why the job cannot have GPUs of this machine; "" where it can.
std::string lacking(const ExperimentSpec& spec, const Machine& machine) {
  const Placement& placement = spec.placement;
  const devices::Inventory& found = machine.found;
  if (found.gpus.empty()) return found.reason.empty() ? "this machine has no GPU" : found.reason;
  if (!on_one_machine(spec)) {
    return "GPUs are driven on one machine in this version, the job has " +
           text(static_cast<int64_t>(placement.nodes.size())) + " nodes";
  }
  if (placement.nodes[0] <= static_cast<int64_t>(machine.devices.gpus.size())) return "";
  return "this machine has " + there_text(machine) + ", " + text(placement.nodes[0]) + " are needed";
}

// GPUs where there are enough of them.
void derive_device(ExperimentSpec& spec, Machine& machine) {
  Placement& placement = spec.placement;
  if (placement.device != "auto") return;
  machine.cpu_taken = lacking(spec, machine);
  placement.device = machine.cpu_taken.empty() ? "cuda" : "cpu";
}

void derive_uuids(ExperimentSpec& spec, const devices::Inventory& machine) {
  Placement& placement = spec.placement;
  if (placement.device != "cuda" || !on_one_machine(spec)) return;
  const auto wanted = std::min(static_cast<size_t>(placement.nodes[0]), machine.gpus.size());
  for (size_t i = 0; i < wanted; ++i) placement.device_uuids.push_back(machine.gpus[i].uuid);
}

void check_uuids(const Placement& placement, const std::vector<devices::Gpu>& devices, Problems& problems) {
  std::set<std::string> seen;
  for (const std::string& uuid : placement.device_uuids) {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [&](const devices::Gpu& gpu) { return gpu.uuid == uuid; });
    if (found == devices.end()) {
      std::vector<std::string> there;
      for (const devices::Gpu& gpu : devices) there.push_back(gpu.uuid);
      const std::string what = placement.devices_per_gpu == 1 ? "GPU" : "share of a GPU";
      return problems.add_at("placement.device_uuids", "no " + what + " of this machine has the UUID " + quoted(uuid) +
                                                           "; it has " + join(there, ", "));
    }
    if (!seen.insert(uuid).second) {
      return problems.add_at("placement.device_uuids", "the UUID " + quoted(uuid) + " is there twice");
    }
  }
  if (placement.device_uuids.size() != static_cast<size_t>(placement.nodes[0])) {
    problems.add_at("placement.device_uuids", "expected a UUID for each of " + text(placement.nodes[0]) +
                                                  " devices, found " +
                                                  text(static_cast<int64_t>(placement.device_uuids.size())));
  }
}

void check_gpus(const ExperimentSpec& spec, const Machine& machine, Problems& problems) {
  const Placement& placement = spec.placement;
  if (machine.found.gpus.empty()) {
    return problems.add_at("placement.device", "placement.device is cuda, but " + machine.found.reason);
  }
  if (!on_one_machine(spec)) {
    return problems.add_at("placement.nodes",
                           "GPUs are driven on one machine in this version, but placement.nodes has " +
                               text(static_cast<int64_t>(placement.nodes.size())) + " nodes");
  }
  if (placement.devices_per_gpu > 1 && spec.engine.backend != "embedded") {
    return problems.add_at("placement.devices_per_gpu", "\"placement.devices_per_gpu\" is " +
                                                            text(placement.devices_per_gpu) +
                                                            ", which goes with engine.backend embedded only, found " +
                                                            spec.engine.backend + "; vLLM's servers need whole GPUs");
  }
  if (placement.nodes[0] > static_cast<int64_t>(machine.devices.gpus.size())) {
    const std::string cure =
        spec.engine.backend == "embedded"
            ? devices::cure_by_sharing("placement.devices_per_gpu", placement.nodes[0], machine.found.gpus.size())
            : "";
    return problems.add_at("placement.nodes",
                           text(placement.nodes[0]) + (placement.devices_per_gpu == 1 ? " GPUs" : " devices") +
                               " are needed (trainer " + text(trainer_devices(placement)) + ", engines behind it " +
                               text(devices_behind(placement)) + "), this machine has " + there_text(machine) +
                               (cure.empty() ? "" : "; " + cure));
  }
  check_uuids(placement, machine.devices.gpus, problems);
}

// Keys that mean something on GPUs only.
void check_cpu(const ExperimentSpec& spec, Problems& problems, const Machine& machine) {
  const auto refuse = [&](const char* key, const std::string& found) {
    if (problems.is_given(key)) {
      problems.add_at(key, quoted(key) + " is " + found + ", but placement.device is cpu, where it has no meaning" +
                               cpu_reason(machine));
    }
  };
  if (spec.trainer.dtype == "bfloat16") {
    problems.add_at("trainer.dtype",
                    "\"trainer.dtype\" is bfloat16, but placement.device is cpu, where training is in float32" +
                        cpu_reason(machine));
  }
  if (!spec.placement.device_uuids.empty()) refuse("placement.device_uuids", "given");
  if (spec.placement.devices_per_gpu != 1) refuse("placement.devices_per_gpu", text(spec.placement.devices_per_gpu));
  if (spec.trainer.recompute_granularity != "none")
    refuse("trainer.recompute_granularity", spec.trainer.recompute_granularity);
  if (spec.offload.train) refuse("offload.train", "true");
  if (spec.offload.rollout) refuse("offload.rollout", "true");
  if (spec.engine.gpu_memory_utilization != Engine().gpu_memory_utilization)
    refuse("engine.gpu_memory_utilization", format_number(spec.engine.gpu_memory_utilization));
}

void check_offload(const ExperimentSpec& spec, Problems& problems) {
  if (spec.placement.colocate) return;
  for (const auto& [key, on] :
       {std::pair{"offload.train", spec.offload.train}, {"offload.rollout", spec.offload.rollout}}) {
    if (on) problems.add_at(key, quoted(key) + " makes room for processes on the same GPU, but colocate is false");
  }
}

}  // namespace

void derive_machine(ExperimentSpec& spec, const Problems& problems, Machine& machine) {
  Placement& placement = spec.placement;
  if (!problems.is_given("placement.rollout_num_gpus") && placement.colocate)
    placement.rollout_num_gpus = trainer_devices(placement);
  if (!problems.is_given("placement.nodes")) derive_nodes(placement, spec.engine.backend == "external");
  const bool shares = problems.sound({"placement.devices_per_gpu"});
  machine.devices = devices::divide(machine.found, shares ? static_cast<int>(placement.devices_per_gpu) : 1);
  derive_device(spec, machine);
  if (placement.device_uuids.empty()) derive_uuids(spec, machine.devices);
  const bool gpus = placement.device == "cuda";
  if (spec.trainer.dtype == "auto") spec.trainer.dtype = gpus ? "bfloat16" : "float32";
  if (spec.trainer.recompute_granularity == "auto") spec.trainer.recompute_granularity = gpus ? "selective" : "none";
  if (!problems.is_given("offload.train")) spec.offload.train = gpus && placement.colocate;
  if (!problems.is_given("offload.rollout")) spec.offload.rollout = gpus && placement.colocate;
  if (gpus && !problems.is_given("engine.gpu_memory_utilization"))
    spec.engine.gpu_memory_utilization = placement.colocate ? 0.6 : 0.9;
  if (!problems.is_given("ci.logprob_gap_tolerance") && spec.trainer.dtype == "bfloat16")
    spec.ci.logprob_gap_tolerance = 0.02;
}

std::string cpu_reason(const Machine& machine) {
  return machine.cpu_taken.empty() ? "" : "; placement.device auto took the CPU: " + machine.cpu_taken;
}

void check_machine(const ExperimentSpec& spec, Problems& problems, const Machine& machine) {
  if (!problems.sound({"placement.device", "placement.nodes", "placement.device_uuids", "placement.devices_per_gpu",
                       "placement.actor_num_nodes", "placement.actor_num_gpus_per_node",
                       "placement.rollout_num_gpus"})) {
    return;
  }
  if (spec.placement.device == "cuda") {
    check_gpus(spec, machine, problems);
    check_offload(spec, problems);
  } else {
    check_cpu(spec, problems, machine);
  }
}

}  // namespace vime::spec
