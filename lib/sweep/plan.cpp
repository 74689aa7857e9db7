#include "sweep/plan.hpp"

#include <algorithm>

#include "arch/parallel_sizes.hpp"
#include "base/error.hpp"
#include "base/strings.hpp"
#include "devices/gpu_share.hpp"
#include "spec/load.hpp"
#include "spec/placement_request.hpp"
#include "spec/print.hpp"
#include "sweep/base_spec.hpp"
#include "sweep/jobs.hpp"
#include "sweep/own_keys.hpp"
#include "sweep/samples.hpp"

namespace vime::sweep {
namespace {

// Any folder that exists: the one with the samples is made later.
constexpr const char* kSomeFolder = "/";

constexpr const char* kLegSpec = "a leg's spec";

// Errors of a spec begin with a place in its text. Nobody sees that of a leg's.
std::string without_places(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) {
    const size_t sentence = line.rfind(kLegSpec, 0) == 0 ? line.find(": ") : std::string::npos;
    lines.push_back(sentence == std::string::npos ? line : line.substr(sentence + 2));
  }
  return join(lines, "\n");
}

// Trainer ranks read the leg's spec back from its file, and so it passes the checks of every spec or is refused here.
std::string refusal_of(const SweepPlan& plan, const Leg& leg) {
  LegSettings settings = plan.settings;
  settings.samples_folder = kSomeFolder;
  try {
    spec::parse(spec::to_yaml(leg_spec(plan.base, leg, settings)), kLegSpec, {}, [&] { return plan.machine; });
  } catch (const Error& error) {
    return without_places(error.what());
  }
  return "";
}

void require_all_legs(const SweepPlan& plan) {
  size_t refused = 0;
  std::string first;
  for (const Leg& leg : plan.legs) {
    const std::string reason = refusal_of(plan, leg);
    if (reason.empty()) continue;
    if (refused++ == 0) first = leg_name(leg) + ": " + reason;
  }
  if (refused == 0) return;
  throw Error(ErrorKind::refused,
              std::to_string(refused) + " of " + std::to_string(plan.legs.size()) +
                  " legs cannot be run; the first is " + first,
              "change the key by --set, or leave legs out by --num-gpus, --tp, --pp, --cp or --only");
}

// Takes sizes that the model cannot be cut into out of the list. A fault begins with what there is too little of ("2
// layers cannot be ..."), which is what is said of them. Those too large for every number of devices have no leg
// anyway.
void leave_out(std::vector<int>& sizes, const char* dimension, const LegSizes& all, const arch::ModelConfig& config,
               std::string (*fault)(const arch::ModelConfig&, int64_t), std::vector<std::string>& left_out) {
  std::erase_if(sizes, [&](int size) {
    const std::string reason = fault(config, size);
    const bool has_legs = std::any_of(all.num_gpus.begin(), all.num_gpus.end(), [&](int n) { return n % size == 0; });
    if (!reason.empty() && has_legs) {
      left_out.push_back(dimension + (" " + std::to_string(size)) + " (" + reason.substr(0, reason.find(" cannot")) +
                         ")");
    }
    return !reason.empty();
  });
}

const char* devices_word(const SweepPlan& plan) {
  return plan.settings.devices_per_gpu == 1 ? "GPUs" : "devices";
}

LegSizes possible_sizes(const SweepRequest& request, SweepPlan& plan, const arch::ModelConfig& config) {
  LegSizes sizes = request.sizes;
  const auto there = static_cast<int>(plan.settings.device_uuids.size());
  if (request.device == "cuda" && !request.num_gpus_given) {
    std::erase_if(sizes.num_gpus, [&](int number) {
      if (number > there)
        plan.left_out.push_back(std::to_string(number) + " " + devices_word(plan) + " (there are " +
                                std::to_string(there) + ")");
      return number > there;
    });
    if (sizes.num_gpus.empty()) sizes.num_gpus = {there};  // a single GPU
  }
  if (!request.tp_given) leave_out(sizes.tp, "TP", sizes, config, arch::tensor_parallel_fault, plan.left_out);
  if (!request.pp_given) leave_out(sizes.pp, "PP", sizes, config, arch::pipeline_parallel_fault, plan.left_out);
  return sizes;
}

void require_there(const std::vector<int>& numbers, const SweepPlan& plan) {
  const size_t gpus = plan.machine.gpus.size(), devices = plan.settings.device_uuids.size();
  for (const int number : numbers) {
    if (number <= static_cast<int>(devices)) continue;
    throw Error(ErrorKind::refused,
                "--num-gpus " + std::to_string(number) + ": this machine has " + devices::count_text(gpus, devices),
                devices::cure_by_sharing("--devices-per-gpu", number, gpus));
  }
}

void settle_devices(const SweepRequest& request, SweepPlan& plan) {
  plan.settings.device = request.device;
  plan.settings.dtype = request.dtype;
  if (request.dtype.empty()) plan.settings.dtype = request.device == "cuda" ? "bfloat16" : "float32";
  if (request.device != "cuda") {
    if (plan.settings.dtype != "float32")
      throw Error(ErrorKind::refused, "--dtype " + plan.settings.dtype + ": training on the CPU is in float32");
    if (request.devices_per_gpu == 1) return;
    throw Error(ErrorKind::refused,
                "--devices-per-gpu " + std::to_string(request.devices_per_gpu) +
                    ": --device is cpu, where every device is virtual",
                "leave it out, or use --device cuda");
  }
  plan.settings.recompute_granularity = "selective";  // what runs on GPUs use
  plan.machine = request.find_gpus();
  if (plan.machine.gpus.empty()) throw Error(ErrorKind::refused, "--device cuda: " + plan.machine.reason);
  plan.settings.devices_per_gpu = request.devices_per_gpu;
  const devices::Inventory devices = devices::divide(plan.machine, request.devices_per_gpu);
  for (const devices::Gpu& device : devices.gpus) plan.settings.device_uuids.push_back(device.uuid);
  if (request.num_gpus_given) require_there(request.sizes.num_gpus, plan);
}

// The base spec is read as that of one virtual device, whatever its own placement: legs have theirs.
std::vector<std::string> base_overrides(const SweepRequest& request) {
  std::vector<std::string> overrides = request.overrides;
  if (request.device != "cuda") return overrides;
  for (const char* own : {"placement.device=cpu", "placement.nodes=[1]", "placement.device_uuids=[]",
                          "placement.devices_per_gpu=1", "placement.colocate=true", "placement.actor_num_nodes=1",
                          "placement.actor_num_gpus_per_node=1", "placement.rollout_num_gpus=1",
                          "placement.rollout_num_gpus_per_engine=1", "trainer.tensor_model_parallel_size=1",
                          "trainer.pipeline_model_parallel_size=1", "trainer.context_parallel_size=1",
                          "trainer.dtype=float32", "trainer.recompute_granularity=none", "offload.train=false",
                          "offload.rollout=false", "engine.gpu_memory_utilization=0.9", "weight_sync.transport=auto"}) {
    overrides.push_back(own);
  }
  return overrides;
}

// Says what is wrong in the sweep's own options, with what is possible.
template <typename Require>
void require_of_option(const std::string& option, int size, const Require& require) {
  try {
    require();
  } catch (const Error& error) {
    throw error.within(option + " " + std::to_string(size));
  }
}

void require_cuts(const SweepPlan& plan, const arch::ModelConfig& config) {
  for (const Leg& leg : plan.legs) {
    require_of_option("--tp", leg.tp, [&] { arch::require_tensor_parallel(config, leg.tp); });
    require_of_option("--pp", leg.pp, [&] { arch::require_pipeline_parallel(config, leg.pp); });
    const int devices = engine_devices(leg, plan.settings.gpus_per_engine);
    require_of_option("--rollout-num-gpus-per-engine", devices,
                      [&] { arch::require_tensor_parallel(config, devices); });
  }
}

void require_whole_engines(const SweepPlan& plan) {
  const int devices = plan.settings.gpus_per_engine;
  std::vector<std::string> uneven;
  for (const Leg& leg : plan.legs) {
    const std::string number = std::to_string(leg.num_gpus);
    const bool fits = leg.num_gpus % engine_devices(leg, devices) == 0;
    if (!fits && std::find(uneven.begin(), uneven.end(), number) == uneven.end()) uneven.push_back(number);
  }
  if (uneven.empty()) return;
  throw Error(ErrorKind::refused,
              join(uneven, " and ") + " devices cannot be shared by engines of " + std::to_string(devices),
              "use --rollout-num-gpus-per-engine 1 or other --num-gpus");
}

// The base spec for a single process; what all legs have in common is read and checked by it.
loop::Prepared prepare_base(const SweepPlan& plan, const std::string& run_id) {
  LegSettings settings = plan.settings;
  settings.samples_folder = kSomeFolder;
  return loop::prepare(leg_spec(plan.base, baseline_leg(Loss::sample_mean), settings), run_id);
}

}  // namespace

std::vector<Loss> losses_of(const std::vector<Leg>& legs) {
  std::vector<Loss> losses;
  for (const Leg& leg : legs) {
    if (std::find(losses.begin(), losses.end(), leg.loss) == losses.end()) losses.push_back(leg.loss);
  }
  return losses;
}

SweepPlan plan_sweep(const SweepRequest& request, const std::string& run_id) {
  SweepPlan plan;
  plan.config = request.config;
  plan.overrides = request.overrides;
  settle_devices(request, plan);
  plan.base = base_spec(request.config, base_overrides(request));
  check_base(plan.base);
  plan.prepared = prepare_base(plan, run_id);
  const arch::ModelConfig& config = plan.prepared.config;
  plan.legs = make_legs(possible_sizes(request, plan, config), request.only);
  plan.settings.gpus_per_engine = request.gpus_per_engine;
  plan.settings.samples = sample_count(plan.legs);
  require_effect(request.overrides, plan.base, plan.legs, plan.settings);
  require_whole_engines(plan);
  require_cuts(plan, config);
  require_all_legs(plan);
  plan.jobs = request.jobs.value_or(default_jobs(plan));
  return plan;
}

loop::Prepared prepare_leg(const SweepPlan& plan, const Leg& leg, bool engines, const std::string& samples_folder,
                           size_t first_device) {
  LegSettings settings = plan.settings;
  const auto begin = settings.device_uuids.begin();
  settings.device_uuids.erase(begin, begin + static_cast<int64_t>(first_device));
  settings.samples_folder = samples_folder;
  loop::Prepared prepared = plan.prepared;
  prepared.spec = leg_spec(plan.base, leg, settings);
  prepared.plan = placement::make_plan(spec::placement_request(prepared.spec, prepared.run_id));
  prepared.parts = {.trainers = true, .engines = engines};
  prepared.max_model_len = prepared.spec.engine.max_model_len.value();
  return prepared;
}

}  // namespace vime::sweep
