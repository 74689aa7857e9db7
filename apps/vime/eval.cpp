// vime eval: evaluation alone, of a model that exists.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "commands.hpp"
#include "loop/evaluate_model.hpp"
#include "proc/process.hpp"
#include "spec/load.hpp"

namespace vime::app {
namespace {

struct EvalArguments {
  SpecArguments spec;
  std::string model;
  bool json = false;
};

int eval_command(const EvalArguments& arguments) {
  std::error_code ignored;
  if (!fs::is_regular_file(fs::path(arguments.model) / "config.json", ignored)) {
    throw Error(ErrorKind::refused, "--model: there is no folder \"" + arguments.model + "\" with a config.json",
                "expected a model in Hugging Face format");
  }
  // The model replaces the spec's, which need not exist.
  std::vector<std::string> overrides = arguments.spec.overrides;
  overrides.push_back("model.path=" + Json(arguments.model).dump());
  overrides.push_back("model.preset=null");
  loop::EvalOptions options;
  options.spec = spec::load(arguments.spec.config, overrides, find_gpus);
  options.json = arguments.json;
  options.vime_binary = proc::own_binary();
  proc::watch_interrupts();
  return loop::evaluate_model(options);
}

}  // namespace

void add_eval_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("eval", "Answer and score the evaluation data sets of a spec with a model");
  const auto arguments = std::make_shared<EvalArguments>();
  add_spec_arguments(*command, arguments->spec);
  command->add_option("--model", arguments->model, "Hugging Face model directory, a checkpoint's model/ for example")
      ->required()
      ->type_name("DIR");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([&chosen, arguments] { chosen = [arguments] { return eval_command(*arguments); }; });
}

}  // namespace vime::app
