// The subcommands of vime bench, one file each.
#pragma once

#include "commands.hpp"

namespace vime::app {

void add_bench_generate(CLI::App& bench, Action& chosen);
void add_bench_train(CLI::App& bench, Action& chosen);
void add_bench_weight_sync(CLI::App& bench, Action& chosen);

}  // namespace vime::app
