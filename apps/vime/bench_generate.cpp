// vime bench generate: the embedded engine, with random weights.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/random.hpp"
#include "bench.hpp"
#include "placement/placement.hpp"
#include "worker_module.hpp"

namespace vime::app {
namespace {

struct GenerateArguments {
  std::string shape = "qwen3-0.6b";
  std::string device = "cuda";
  int devices = 1;
  int64_t sequences = 256;
  int64_t prompt_tokens = 128;
  std::vector<int64_t> response_tokens = {512, 1024};
  bool deterministic = false;
  bool no_http = false;
  bool json = false;
};

int generate_command(const GenerateArguments& arguments) {
  std::vector<std::string> uuids;
  if (arguments.device == "cuda") {
    uuids = first_gpus(arguments.devices);
  } else {
    const std::string run_id = random_token();
    for (int i = 0; i < arguments.devices; ++i) uuids.push_back(placement::cpu_device_uuid(run_id, 0, i));
  }
  return run_worker_module("bench", {{"what", "generate"},
                                     {"shape", arguments.shape},
                                     {"device", arguments.device},
                                     {"device_uuids", uuids},
                                     {"sequences", arguments.sequences},
                                     {"prompt_tokens", arguments.prompt_tokens},
                                     {"response_tokens", arguments.response_tokens},
                                     {"deterministic", arguments.deterministic},
                                     {"http", !arguments.no_http},
                                     {"json", arguments.json}});
}

}  // namespace

void add_bench_generate(CLI::App& bench, Action& chosen) {
  CLI::App* command = bench.add_subcommand("generate", "Tokens per second of the embedded engine, random weights");
  const auto arguments = std::make_shared<GenerateArguments>();
  command
      ->add_option("--shape", arguments->shape,
                   "qwen3-0.6b (default), qwen3-4b, qwen3-8b, or a model directory for its config.json")
      ->type_name("NAME|DIR");
  command->add_option("--device", arguments->device, "What it runs on (default cuda)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->type_name("cpu|cuda");
  command->add_option("--devices", arguments->devices, "Tensor-parallel workers (default 1)")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  command->add_option("--sequences", arguments->sequences, "Sequences, all at the same time (default 256)")
      ->check(CLI::Range(1, 65536))
      ->type_name("N");
  command->add_option("--prompt-tokens", arguments->prompt_tokens, "Tokens of each prompt (default 128)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command->add_option("--response-tokens", arguments->response_tokens, "Tokens of each answer (default 512,1024)")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_flag("--deterministic", arguments->deterministic, "Results that do not depend on the load");
  command->add_flag("--no-http", arguments->no_http, "Leave out the run over HTTP");
  command->add_flag("--json", arguments->json, "The figures as JSON");
  command->callback([&chosen, arguments] { chosen = [arguments] { return generate_command(*arguments); }; });
}

}  // namespace vime::app
