// The subcommands of vime, one file each. add_x_command declares a subcommand and its options; when the command line
// names it, `chosen` becomes what main then runs: it returns the exit status, or throws vime::Error.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "devices/devices.hpp"

namespace CLI {
class App;
}

namespace vime::app {

using Action = std::function<int()>;

// All of main. Called again by a fork of the node agent, with the arguments that the fork has taken on.
int run_command_line(int argc, char** argv);

void add_run_command(CLI::App& app, Action& chosen);
void add_plan_command(CLI::App& app, Action& chosen);
void add_eval_command(CLI::App& app, Action& chosen);
void add_check_parallel_command(CLI::App& app, Action& chosen);
void add_engine_command(CLI::App& app, Action& chosen);
void add_trainer_command(CLI::App& app, Action& chosen);
void add_agent_command(CLI::App& app, Action& chosen);
void add_doctor_command(CLI::App& app, Action& chosen);
void add_bench_command(CLI::App& app, Action& chosen);

// What device: cuda can use: the machine's GPUs, or the reason why this build or this machine has none.
devices::Inventory find_gpus();
// UUIDs of the first `count` GPUs that this process may use; Error{refused} when there are fewer. They are looked up in
// a process of its own: workers are forked from this one, and one that is forked after CUDA was asked anything cannot
// use it. Error{process_failed} when the answer takes more than a minute.
std::vector<std::string> first_gpus(int count);

// CONFIG and --set, which several subcommands take.
struct SpecArguments {
  std::string config;
  std::vector<std::string> overrides;
};
void add_spec_arguments(CLI::App& command, SpecArguments& arguments);
// The same where CONFIG may be left out; its description says what then holds.
void add_spec_arguments(CLI::App& command, SpecArguments& arguments, const std::string& optional_config);

}  // namespace vime::app
