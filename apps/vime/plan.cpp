// vime plan: what a run would start, where. Starts nothing.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.hpp"
#include "fleet/vllm_launch.hpp"
#include "loop/prepare.hpp"
#include "loop/vllm_servers.hpp"
#include "spec/load.hpp"
#include "spec/plan_view.hpp"

namespace vime::app {
namespace {

struct PlanOptions {
  SpecArguments spec;
  bool json = false;
};

int plan_command(const PlanOptions& options) {
  const spec::ExperimentSpec spec = spec::load(options.spec.config, options.spec.overrides, find_gpus);
  const loop::Prepared prepared = loop::prepare(spec, "");
  const spec::ModelPlan model = spec::model_plan(spec, prepared.config);
  Json json = spec::plan_json(spec, prepared.plan, model, false);
  std::string text = spec::plan_table(spec, prepared.plan, model);
  if (spec.engine.backend == "vllm") {
    const std::vector<uint16_t> ports(prepared.plan.engines.size(), 0);  // the kernel chooses them at start
    for (const fleet::VllmLaunch& launch : loop::vllm_launches(prepared, "<run>/model", "<run>/logs", ports)) {
      const proc::Command command = fleet::vllm_command(launch);
      json["engines"][static_cast<size_t>(launch.id)]["command"] = fleet::command_json(command);
      text += "\nengine " + std::to_string(launch.id) + ": " + fleet::command_text(command) + "\n";
    }
  }
  if (options.json) text = json.dump(2) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("plan", "Show which process would get which device; starts nothing");
  const auto options = std::make_shared<PlanOptions>();
  add_spec_arguments(*command, options->spec);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([&chosen, options] { chosen = [options] { return plan_command(*options); }; });
}

}  // namespace vime::app
