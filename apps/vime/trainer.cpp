// vime trainer: one trainer rank. Started by `vime run` through the node agent, never by hand.
#include <CLI/CLI.hpp>
#include <memory>

#include "commands.hpp"
#include "worker_module.hpp"

namespace vime::app {
namespace {

struct TrainerArguments {
  std::string run_dir;
  std::string run_id;
  int rank = 0;
  std::string checkpoint;
};

int trainer_command(const TrainerArguments& arguments) {
  return run_worker_module("trainer", {{"run_dir", arguments.run_dir},
                                       {"run_id", arguments.run_id},
                                       {"rank", arguments.rank},
                                       {"checkpoint", arguments.checkpoint},
                                       {"token", run_token()}});
}

}  // namespace

void add_trainer_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("trainer", "One trainer rank of a run (vime starts it itself)");
  command->group("");  // not in vime --help
  const auto arguments = std::make_shared<TrainerArguments>();
  command->add_option("--run-dir", arguments->run_dir, "Run directory with spec.yaml and model/")->required();
  command->add_option("--run-id", arguments->run_id, "Run that it works for")->required();
  command->add_option("--rank", arguments->rank, "Its rank")->required();
  command->add_option("--checkpoint", arguments->checkpoint, "Checkpoint that training goes on from");
  command->callback([&chosen, arguments] { chosen = [arguments] { return trainer_command(*arguments); }; });
}

}  // namespace vime::app
