// vime run: an experiment from its spec to its final checkpoint.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "commands.hpp"
#include "loop/prepare.hpp"
#include "loop/run.hpp"
#include "loop/run_directory.hpp"
#include "proc/process.hpp"
#include "spec/load.hpp"
#include "spec/plan_view.hpp"
#include "spec/print.hpp"

namespace vime::app {
namespace {

struct RunArguments {
  SpecArguments spec;
  std::string run_dir;
  bool resume = false;
  bool ci_test = false;
  bool dry_run = false;
  bool quiet = false;
};

int dry_run(const spec::ExperimentSpec& spec) {
  const loop::Prepared prepared = loop::prepare(spec, "");
  const std::string text =
      spec::to_yaml(spec) + "\n" + spec::plan_table(spec, prepared.plan, spec::model_plan(spec, prepared.config));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

fs::path run_dir_of(const RunArguments& arguments, const std::string& name) {
  if (!arguments.run_dir.empty()) return arguments.run_dir;
  if (!arguments.resume) return loop::default_run_dir(name);
  const fs::path newest = loop::newest_run_dir(name);
  if (!newest.empty()) return newest;
  throw Error(ErrorKind::refused, "--resume: there is no folder runs/" + name + "-<time> to go on with",
              "name the run's folder by --run-dir");
}

int run_command(const RunArguments& arguments) {
  spec::ExperimentSpec spec = spec::load(arguments.spec.config, arguments.spec.overrides, find_gpus);
  if (arguments.ci_test) spec.ci_test = true;
  if (arguments.dry_run) return dry_run(spec);
  loop::RunOptions options;
  options.spec = spec;
  options.run_dir = run_dir_of(arguments, spec.name);
  options.resume = arguments.resume;
  options.quiet = arguments.quiet;
  options.vime_binary = proc::own_binary();
  proc::watch_interrupts();
  return loop::execute_run(options);
}

}  // namespace

void add_run_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("run", "Run an experiment: engines, trainer ranks, and the loop between them");
  const auto arguments = std::make_shared<RunArguments>();
  add_spec_arguments(*command, arguments->spec);
  command->add_option("--run-dir", arguments->run_dir, "Where everything goes (default runs/<name>-<time>)")
      ->type_name("DIR");
  command->add_flag("--resume", arguments->resume,
                    "Go on from the newest checkpoint in --run-dir (without one: the newest runs/<name>-<time>)");
  command->add_flag("--ci-test", arguments->ci_test, "Every self-check that fails ends the run with exit status 3");
  command->add_flag("--dry-run", arguments->dry_run, "Print the resolved spec and the plan; start nothing");
  command->add_flag("--quiet", arguments->quiet, "No progress and no closing summary");
  command->callback([&chosen, arguments] { chosen = [arguments] { return run_command(*arguments); }; });
}

}  // namespace vime::app
