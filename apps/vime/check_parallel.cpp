// vime check-parallel: trains the same samples in every parallel layout and holds each against a single process.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/random.hpp"
#include "commands.hpp"
#include "devices/gpu_share.hpp"
#include "loop/run_directory.hpp"
#include "proc/process.hpp"
#include "sweep/plan.hpp"
#include "sweep/report.hpp"
#include "sweep/sweep.hpp"

namespace vime::app {
namespace {

struct LegArguments {
  SpecArguments spec;
  std::string num_gpus = "8,4,2";
  std::string tp = "1,2,4,8";
  std::string pp = "1,2,4";
  std::string cp = "1,2,4,8";
  std::string only;
  bool tp_given = false;
  bool pp_given = false;
  std::string gpus_per_engine = "2";
  std::string device = "cpu";
  std::string devices_per_gpu = "1";
  std::string dtype;
  bool num_gpus_given = false;
};

struct SweepArguments {
  LegArguments legs;
  std::optional<std::string> json_path;
  std::string run_dir;
  std::optional<std::string> jobs;
};

struct PlanArguments {
  LegArguments legs;
  bool json = false;
};

void add_leg_arguments(CLI::App& command, LegArguments& arguments) {
  add_spec_arguments(
      command, arguments.spec,
      "YAML experiment spec; its model, algorithm, seed, micro-batches and transport are used, the sweep "
      "sets the rest itself (without CONFIG: a small random model)");
  command.get_option("--set")->description(
      "Change a key of the spec that the sweep does not set itself, for example algorithm.eps_clip=0.1 or seed=7; may "
      "be "
      "repeated");
  command
      .add_option_function<std::string>(
          "--num-gpus",
          [&arguments](const std::string& numbers) {
            arguments.num_gpus = numbers;
            arguments.num_gpus_given = true;
          },
          "Numbers of devices (default 8,4,2; of GPUs those of them that are there)")
      ->type_name("LIST");
  command
      .add_option_function<std::string>(
          "--tp",
          [&arguments](const std::string& sizes) {
            arguments.tp = sizes;
            arguments.tp_given = true;
          },
          "Tensor-parallel sizes (default those of 1,2,4,8 that the model can be cut into)")
      ->type_name("LIST");
  command
      .add_option_function<std::string>(
          "--pp",
          [&arguments](const std::string& sizes) {
            arguments.pp = sizes;
            arguments.pp_given = true;
          },
          "Pipeline-parallel sizes (default those of 1,2,4 that the model can be cut into)")
      ->type_name("LIST");
  command.add_option("--cp", arguments.cp, "Context-parallel sizes (default 1,2,4,8)")->type_name("LIST");
  command
      .add_option("--only", arguments.only,
                  "The legs with these values alone, for example tp=2,pp=2; names: num_gpus, tp, pp, cp, dp, loss")
      ->type_name("NAME=VALUE,...");
  command.add_option("--rollout-num-gpus-per-engine", arguments.gpus_per_engine, "Devices of an engine (default 2)")
      ->type_name("N");
  command
      .add_option("--device", arguments.device, "cpu: virtual devices of this machine; cuda: its GPUs (default cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->type_name("cpu|cuda");
  command
      .add_option(
          "--devices-per-gpu", arguments.devices_per_gpu,
          "Devices that share each GPU and take turns on it, to try layouts of more devices than there are GPUs "
          "(default 1)")
      ->type_name("N");
  command.add_option("--dtype", arguments.dtype, "Type of weights (default bfloat16 on GPUs, float32 on the CPU)")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->type_name("TYPE");
}

sweep::SweepPlan plan_of(const LegArguments& arguments, const std::string& run_id,
                         const std::optional<std::string>& jobs = {}) {
  sweep::SweepRequest request;
  request.device = arguments.device;
  request.dtype = arguments.dtype;
  request.devices_per_gpu = sweep::parse_count("--devices-per-gpu", arguments.devices_per_gpu, devices::kMostPerGpu);
  request.find_gpus = find_gpus;
  request.num_gpus_given = arguments.num_gpus_given;
  request.sizes = {sweep::parse_sizes("--num-gpus", arguments.num_gpus), sweep::parse_sizes("--tp", arguments.tp),
                   sweep::parse_sizes("--pp", arguments.pp), sweep::parse_sizes("--cp", arguments.cp)};
  request.only = sweep::parse_only(arguments.only);
  request.tp_given = arguments.tp_given;
  request.pp_given = arguments.pp_given;
  request.gpus_per_engine = sweep::parse_count("--rollout-num-gpus-per-engine", arguments.gpus_per_engine);
  if (jobs) request.jobs = sweep::parse_count("--jobs", *jobs);
  request.config = arguments.spec.config;
  request.overrides = arguments.spec.overrides;
  return sweep::plan_sweep(request, run_id);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int plan_command(const PlanArguments& arguments) {
  const sweep::SweepPlan plan = plan_of(arguments.legs, "");
  const int gpus = plan.settings.gpus_per_engine;
  print(arguments.json ? sweep::plan_json(plan.legs, gpus, plan.left_out).dump(2) + "\n"
                       : sweep::left_out_line(plan.left_out) + sweep::plan_table(plan.legs, gpus));
  return 0;
}

int sweep_command(const SweepArguments& arguments) {
  const sweep::SweepPlan plan = plan_of(arguments.legs, random_token(), arguments.jobs);
  sweep::SweepOptions options;
  options.keep = !arguments.run_dir.empty();
  options.run_dir = options.keep ? fs::path(arguments.run_dir) : loop::default_run_dir("check-parallel");
  options.json_path = arguments.json_path;
  options.vime_binary = proc::own_binary();
  options.vime_version = VIME_VERSION;
  options.print = print;
  proc::watch_interrupts();
  return sweep::exit_status(sweep::execute_sweep(plan, options));
}

void add_sweep(CLI::App& group, Action& chosen) {
  CLI::App* command = group.add_subcommand("sweep", "Run the legs; exit status 3 on any mismatch");
  const auto arguments = std::make_shared<SweepArguments>();
  add_leg_arguments(*command, arguments->legs);
  command
      ->add_option_function<std::string>(
          "--json", [path = &arguments->json_path](const std::string& file) { *path = file; },
          "Write the result to a file as JSON; an old file is removed when the sweep begins")
      ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--jobs", [jobs = &arguments->jobs](const std::string& number) { *jobs = number; },
          "Legs that run at the same time (default 1 on the CPU and on GPUs that devices share; on others up to 4, as "
          "many as fit into their memory)")
      ->type_name("N");
  command
      ->add_option("--run-dir", arguments->run_dir,
                   "Keep every leg's folder here (without it: only failed legs' logs, in runs/check-parallel-<time>)")
      ->type_name("DIR");
  command->callback([&chosen, arguments] { chosen = [arguments] { return sweep_command(*arguments); }; });
}

void add_plan(CLI::App& group, Action& chosen) {
  CLI::App* command = group.add_subcommand("plan", "List the legs; starts nothing");
  const auto arguments = std::make_shared<PlanArguments>();
  add_leg_arguments(*command, arguments->legs);
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([&chosen, arguments] { chosen = [arguments] { return plan_command(*arguments); }; });
}

}  // namespace

void add_check_parallel_command(CLI::App& app, Action& chosen) {
  CLI::App* group =
      app.add_subcommand("check-parallel", "Prove that every parallel layout trains and pushes the same weights");
  group->require_subcommand(1);
  add_sweep(*group, chosen);
  add_plan(*group, chosen);
}

}  // namespace vime::app
