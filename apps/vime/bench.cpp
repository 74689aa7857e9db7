// vime bench: how fast the parts are on this machine.
#include "bench.hpp"

#include <CLI/CLI.hpp>

namespace vime::app {

void add_bench_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("bench", "How fast the parts are on this machine");
  command->require_subcommand(1);
  add_bench_train(*command, chosen);
  add_bench_generate(*command, chosen);
  add_bench_weight_sync(*command, chosen);
}

}  // namespace vime::app
