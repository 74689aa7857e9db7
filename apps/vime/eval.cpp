// vime eval: evaluation alone, of a model that exists.
#include <CLI/CLI.hpp>
#include <memory>

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
  loop::EvalOptions options;
  options.spec = spec::load(arguments.spec.config, arguments.spec.overrides);
  options.model_dir = arguments.model;
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
