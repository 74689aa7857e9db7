// vime bench train: a training step on one GPU, with random weights and tokens.
#include <CLI/CLI.hpp>
#include <memory>

#include "bench.hpp"
#include "worker_module.hpp"

namespace vime::app {
namespace {

struct TrainArguments {
  std::string shape = "qwen3-4b";
  int64_t tokens = 16384;
  int64_t sequence = 4096;
  std::vector<int64_t> micro_batches = {1, 4};
  std::string recompute = "selective";
  int64_t layers = 0;
  int repeats = 3;
  bool kernels = false;
  bool json = false;
};

int train_command(const TrainArguments& arguments) {
  return run_worker_module("bench", {{"what", "train"},
                                     {"shape", arguments.shape},
                                     {"device_uuid", first_gpus(1).front()},
                                     {"tokens", arguments.tokens},
                                     {"sequence", arguments.sequence},
                                     {"micro_batches", arguments.micro_batches},
                                     {"recompute", arguments.recompute},
                                     {"layers", arguments.layers},
                                     {"repeats", arguments.repeats},
                                     {"kernels", arguments.kernels},
                                     {"json", arguments.json}});
}

}  // namespace

void add_bench_train(CLI::App& bench, Action& chosen) {
  CLI::App* command = bench.add_subcommand("train", "Tokens per second and MFU of a training step on one GPU");
  const auto arguments = std::make_shared<TrainArguments>();
  command->add_option("--shape", arguments->shape, "qwen3-0.6b, qwen3-4b (default) or qwen3-8b")->type_name("NAME");
  command->add_option("--tokens", arguments->tokens, "Tokens of a micro-batch (default 16384)")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N");
  command->add_option("--sequence", arguments->sequence, "Tokens of each of its sequences (default 4096)")
      ->check(CLI::Range(2, 1 << 24))
      ->type_name("N");
  command->add_option("--micro-batches", arguments->micro_batches, "Micro-batches of a step (default 1,4)")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--recompute", arguments->recompute, "Activations computed again (default selective)")
      ->check(CLI::IsMember({"none", "selective", "full"}))
      ->type_name("WHAT");
  command->add_option("--layers", arguments->layers, "Layers of the model (default the shape's own)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--repeats", arguments->repeats, "Steps that are timed (default 3)")
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  command->add_flag("--kernels", arguments->kernels, "Also which kernels took how long");
  command->add_flag("--json", arguments->json, "The figures as JSON");
  command->callback([&chosen, arguments] { chosen = [arguments] { return train_command(*arguments); }; });
}

}  // namespace vime::app
