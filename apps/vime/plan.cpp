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
  std::string text = options.json ? spec::plan_json(spec, prepared.plan, model, false).dump(2) + "\n"
                                  : spec::plan_table(spec, prepared.plan, model);
  if (!options.json && spec.engine.backend == "vllm") {
    const std::vector<uint16_t> ports(prepared.plan.engines.size(), 0);  // the kernel chooses them at start
    for (const fleet::VllmLaunch& launch : loop::vllm_launches(prepared, "<run>/model", "<run>/logs", ports)) {
      text += "\nengine " + std::to_string(launch.id) + ": " + fleet::command_text(fleet::vllm_command(launch)) + "\n";
    }
  }
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
