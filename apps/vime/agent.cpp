// vime agent: the process on each node that starts and ends all others. Started by vime itself, never by hand.
#include <CLI/CLI.hpp>
#include <memory>

#include "commands.hpp"
#include "proc/agent.hpp"
#include "proc/process.hpp"

namespace vime::app {
namespace {

struct AgentOptions {
  int fd = -1;
  std::string run_id;
};

int agent_command(int fd, const std::string& run_id) {
  proc::set_title("vime agent " + run_id);
  return proc::agent_main(fd, run_id);
}

}  // namespace

void add_agent_command(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("agent", "Start, watch and end the processes of a run (vime starts it itself)");
  command->group("");  // not in vime --help
  const auto options = std::make_shared<AgentOptions>();
  command->add_option("--fd", options->fd, "Descriptor of the stream to the driver")->required();
  command->add_option("--run-id", options->run_id, "Run that it works for")->required();
  command->callback([&chosen, options] { chosen = [options] { return agent_command(options->fd, options->run_id); }; });
}

}  // namespace vime::app
