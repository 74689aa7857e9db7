// vime engine: the embedded engine, an inference server with vLLM's routes.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/random.hpp"
#include "base/strings.hpp"
#include "commands.hpp"
#include "placement/placement.hpp"
#include "worker_module.hpp"

namespace vime::app {
namespace {

struct EngineArguments {
  std::string model;
  std::string load_format = "auto";
  std::string served_model_name;
  std::string host = "127.0.0.1";
  int port = 0;
  std::string device = "cpu";
  std::string dtype = "auto";
  double gpu_memory_utilization = 0.9;
  bool deterministic = false;
  int devices = 1;
  std::string device_uuids;
  std::string run_id;
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 256;
  std::string logprobs_mode = "processed_logprobs";
  int64_t transfer_timeout_ms = 900000;
};

int engine_command(const EngineArguments& arguments) {
  const std::string run_id = arguments.run_id.empty() ? random_token() : arguments.run_id;
  std::vector<std::string> uuids;
  if (!arguments.device_uuids.empty()) {
    uuids = split(arguments.device_uuids, ',');
  } else if (arguments.device == "cuda") {
    uuids = first_gpus(arguments.devices);
  } else {
    for (int i = 0; i < arguments.devices; ++i) uuids.push_back(placement::cpu_device_uuid(run_id, 0, i));
  }
  return run_worker_module("engine", {{"model_dir", arguments.model},
                                      {"load_format", arguments.load_format},
                                      {"served_model_name", arguments.served_model_name},
                                      {"address", arguments.host},
                                      {"port", arguments.port},
                                      {"device", arguments.device},
                                      {"device_uuids", uuids},
                                      {"dtype", arguments.dtype},
                                      {"gpu_memory_utilization", arguments.gpu_memory_utilization},
                                      {"deterministic", arguments.deterministic},
                                      {"run_id", run_id},
                                      {"token", run_token()},
                                      {"max_model_len", arguments.max_model_len},
                                      {"max_num_seqs", arguments.max_num_seqs},
                                      {"logprobs_mode", arguments.logprobs_mode},
                                      {"transfer_timeout_ms", arguments.transfer_timeout_ms}});
}

}  // namespace

void add_engine_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("engine", "Serve a model over vLLM's HTTP API with the embedded engine");
  const auto arguments = std::make_shared<EngineArguments>();
  command->add_option("--model", arguments->model, "Hugging Face model directory")->required()->type_name("DIR");
  command
      ->add_option("--load-format", arguments->load_format,
                   "auto: weights from the directory; dummy: by the first push")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->type_name("auto|dummy");
  command
      ->add_option("--served-model-name", arguments->served_model_name,
                   "Name of the model in requests (default: its directory)")
      ->type_name("NAME");
  command->add_option("--host", arguments->host, "Address to listen on (default 127.0.0.1)")->type_name("ADDRESS");
  command->add_option("--port", arguments->port, "Port; 0: the kernel chooses, and the log says which")
      ->check(CLI::Range(0, 65535))
      ->type_name("P");
  command->add_option("--device", arguments->device, "cpu: virtual devices; cuda: GPUs (default cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->type_name("cpu|cuda");
  command
      ->add_option("--dtype", arguments->dtype,
                   "Type of weights and arithmetic; auto: float32 on the CPU, the model's on GPUs")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->type_name("TYPE");
  command
      ->add_option("--gpu-memory-utilization", arguments->gpu_memory_utilization,
                   "Share of a GPU's memory that a worker may take (default 0.9)")
      ->check(CLI::Range(0.01, 1.0))
      ->type_name("SHARE");
  command->add_flag("--deterministic", arguments->deterministic,
                    "On GPUs: a token's log-prob does not depend on what shares its batch, at the cost of speed");
  command->add_option("--devices", arguments->devices, "Devices, one worker each (default 1)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--device-uuids", arguments->device_uuids, "UUIDs of its devices, instead of --devices")
      ->type_name("LIST");
  command->add_option("--run-id", arguments->run_id, "Run that it works for")->type_name("ID");
  command->add_option("--max-model-len", arguments->max_model_len, "Longest sequence; 0: the model's limit")
      ->type_name("TOKENS");
  command->add_option("--max-num-seqs", arguments->max_num_seqs, "Sequences generated at the same time (default 256)")
      ->type_name("N");
  command->add_option("--logprobs-mode", arguments->logprobs_mode, "Before or after temperature and filters")
      ->check(CLI::IsMember({"processed_logprobs", "raw_logprobs"}))
      ->type_name("MODE");
  command->add_option("--transfer-timeout-ms", arguments->transfer_timeout_ms, "Deadline of weight transfers")
      ->type_name("MS");
  command->callback([&chosen, arguments] { chosen = [arguments] { return engine_command(*arguments); }; });
}

}  // namespace vime::app
