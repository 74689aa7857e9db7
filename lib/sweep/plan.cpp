#include "sweep/plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "spec/load.hpp"
#include "spec/placement_request.hpp"
#include "spec/print.hpp"
#include "sweep/samples.hpp"

namespace vime::sweep {
namespace {

// Any folder that exists: the one with the samples is made later.
constexpr const char* kSomeFolder = "/";

// Trainer ranks read the leg's spec back from its file, and so it passes the checks of every spec or is refused here.
std::string refusal_of(const SweepPlan& plan, const Leg& leg) {
  LegSettings settings = plan.settings;
  settings.samples_folder = kSomeFolder;
  try {
    spec::parse(spec::to_yaml(leg_spec(plan.base, leg, settings)), "its spec");
  } catch (const Error& error) {
    return error.what();
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
              "leave them out by --num-gpus, --tp, --pp, --cp or --rollout-num-gpus-per-engine");
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
  check_base(request.base);
  SweepPlan plan;
  plan.base = request.base;
  plan.legs = make_legs(request.sizes, request.only);
  plan.settings.gpus_per_engine = request.gpus_per_engine;
  plan.settings.samples = sample_count(plan.legs);
  require_all_legs(plan);
  LegSettings settings = plan.settings;
  settings.samples_folder = kSomeFolder;
  plan.prepared = loop::prepare(leg_spec(plan.base, baseline_leg(plan.legs.front().loss), settings), run_id);
  return plan;
}

loop::Prepared prepare_leg(const SweepPlan& plan, const Leg& leg, bool engines, const std::string& samples_folder) {
  LegSettings settings = plan.settings;
  settings.samples_folder = samples_folder;
  loop::Prepared prepared = plan.prepared;
  prepared.spec = leg_spec(plan.base, leg, settings);
  prepared.plan = placement::make_plan(spec::placement_request(prepared.spec, prepared.run_id));
  prepared.parts = {.trainers = true, .engines = engines};
  prepared.max_model_len = prepared.spec.engine.max_model_len.value();
  return prepared;
}

}  // namespace vime::sweep
