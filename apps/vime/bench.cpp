// vime bench: how fast the parts are on this machine. Each benchmark is a file of its own.
#include <CLI/CLI.hpp>

#include "commands.hpp"

namespace vime::app {

void add_bench_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("bench", "How fast the parts are on this machine");
  command->require_subcommand(1);
  add_bench_weight_sync(*command, chosen);
}

}  // namespace vime::app
