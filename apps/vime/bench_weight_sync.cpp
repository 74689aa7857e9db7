// vime bench weight-sync: pushes of public models' tensor lists, against plain copies of the same bytes.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/json.hpp"
#include "bench.hpp"
#include "proc/process.hpp"
#include "worker_module.hpp"

namespace vime::app {
namespace {

constexpr const char* kEngineCommand = "weight-sync-engine";

struct WeightSyncArguments {
  std::string model = "all";
  std::string transport = "ipc";
  int tensor_parallel = 1;
  int engine_workers = 0;
  bool whole_tensors = false;
  int repeat = 5;
  int64_t buffer_mib = 512;
  int64_t chunk_mib = 1024;
  bool json = false;
};

int weight_sync_command(const WeightSyncArguments& arguments) {
  return run_worker_module("bench", {{"what", "weight-sync"},
                                     {"model", arguments.model},
                                     {"transport", arguments.transport},
                                     {"tensor_parallel", arguments.tensor_parallel},
                                     {"engine_workers", arguments.engine_workers},
                                     {"whole_tensors", arguments.whole_tensors},
                                     {"repeat", arguments.repeat},
                                     {"buffer_bytes", arguments.buffer_mib << 20},
                                     {"chunk_bytes", arguments.chunk_mib << 20},
                                     {"json", arguments.json},
                                     {"engine_command", {proc::own_binary(), "bench", kEngineCommand}}});
}

}  // namespace

void add_bench_weight_sync(CLI::App& bench, Action& chosen) {
  CLI::App* command = bench.add_subcommand("weight-sync", "Pushes of weights from a trainer into an engine");
  const auto arguments = std::make_shared<WeightSyncArguments>();
  command->add_option("--model", arguments->model, "Whose tensors (default all)")
      ->type_name("qwen3-0.6b|qwen3-8b|qwen3-30b-a3b|all");
  command->add_option("--transport", arguments->transport, "ipc, nccl: between GPUs' memory; shm, tcp: the host's")
      ->check(CLI::IsMember({"ipc", "nccl", "shm", "tcp"}))
      ->type_name("ipc|nccl|shm|tcp");
  command->add_option("--tensor-parallel", arguments->tensor_parallel, "Trainer ranks that share the model (default 1)")
      ->check(CLI::Range(1, 8))
      ->type_name("N");
  command
      ->add_option("--engine-workers", arguments->engine_workers,
                   "Devices of an engine (default: 1 over the network; colocated engines share the devices of the "
                   "ranks, by default one has all)")
      ->check(CLI::Range(1, 8))
      ->type_name("N");
  command->add_flag(
      "--whole-tensors", arguments->whole_tensors,
      "Show colocated engines whole tensors that the ranks bring together, as vLLM, not the ranks' shards");
  command->add_option("--repeat", arguments->repeat, "Pushes after the first (default 5)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command->add_option("--buffer-mib", arguments->buffer_mib, "Of a bucket that is gathered (default 512)")
      ->check(CLI::Range(1, 65536))
      ->type_name("MIB");
  command->add_option("--chunk-mib", arguments->chunk_mib, "Of a message straight from the weights (default 1024)")
      ->check(CLI::Range(1, 65536))
      ->type_name("MIB");
  command->add_flag("--json", arguments->json, "The figures as JSON");
  command->callback([&chosen, arguments] { chosen = [arguments] { return weight_sync_command(*arguments); }; });

  CLI::App* engine = bench.add_subcommand(kEngineCommand, "The engine's side of weight-sync (which starts it itself)");
  engine->group("");  // not in vime bench --help
  const auto options = std::make_shared<std::string>();
  engine->add_option("options", *options, "As JSON")->required();
  engine->callback([&chosen, options] {
    chosen = [options] {
      Json json = parse_json(*options, "options", ErrorKind::refused);
      json["what"] = kEngineCommand;
      return run_worker_module("bench", json);
    };
  });
}

}  // namespace vime::app
