// vime agent: the process on each node that starts and ends all others. Started by vime itself, never by hand.
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "commands.hpp"
#include "proc/agent.hpp"
#include "proc/process.hpp"
#include "worker_module.hpp"

namespace vime::app {
namespace {

struct AgentOptions {
  int fd = -1;
  std::string run_id;
  bool preload = false;
};

// Whether the worker module that this process has loaded is what the command would load.
bool is_worker(const proc::Command& command) {
  return command.argv.size() >= 2 && command.argv[0] == proc::own_binary() &&
         (command.argv[1] == "trainer" || command.argv[1] == "engine") && !command.env.contains(kModuleVariable);
}

int agent_command(const AgentOptions& options) {
  proc::set_title("vime agent " + options.run_id);
  proc::Preloaded preloaded;
  if (options.preload && preload_worker_module()) preloaded = {is_worker, run_command_line};
  return proc::agent_main(options.fd, options.run_id, std::move(preloaded));
}

}  // namespace

void add_agent_command(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("agent", "Start, watch and end the processes of a run (vime starts it itself)");
  command->group("");  // not in vime --help
  const auto options = std::make_shared<AgentOptions>();
  command->add_option("--fd", options->fd, "Descriptor of the stream to the driver")->required();
  command->add_option("--run-id", options->run_id, "Run that it works for")->required();
  command->add_flag("--preload", options->preload, "Load the worker module once, and fork trainers and engines");
  command->callback([&chosen, options] { chosen = [options] { return agent_command(*options); }; });
}

}  // namespace vime::app
