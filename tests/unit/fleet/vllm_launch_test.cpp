// How a vLLM server is started, and what of it is shown.
#include "fleet/vllm_launch.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace vime;
using namespace vime::fleet;

namespace {

VllmLaunch some_launch() {
  VllmLaunch launch;
  launch.id = 2;
  launch.model_dir = "/run/model";
  launch.served_model = "policy";
  launch.port = 4711;
  launch.dtype = "bfloat16";
  launch.tensor_parallel_size = 2;
  launch.device_uuids = {"aaaa", "bbbb"};
  launch.transfer_backend = "ipc";
  launch.max_model_len = 2048;
  launch.max_num_seqs = 64;
  launch.gpu_memory_utilization = 0.5;
  launch.sleeps = true;
  launch.logprobs_mode = "processed_logprobs";
  launch.seed = 7;
  launch.log_dir = "/run/logs";
  return launch;
}

std::string value_of(const proc::Command& command, const std::string& flag) {
  const auto found = std::find(command.argv.begin(), command.argv.end(), flag);
  return found == command.argv.end() || found + 1 == command.argv.end() ? "" : *(found + 1);
}

bool has(const proc::Command& command, const std::string& word) {
  return std::find(command.argv.begin(), command.argv.end(), word) != command.argv.end();
}

}  // namespace

TEST_CASE("a server on GPUs gets its devices, its share of them, and the routes of pushes") {
  const proc::Command command = vllm_command(some_launch());
  CHECK(command.role == "engine-2");
  CHECK(std::vector<std::string>(command.argv.begin(), command.argv.begin() + 3) ==
        std::vector<std::string>{"vllm", "serve", "/run/model"});
  CHECK(value_of(command, "--port") == "4711");
  CHECK(value_of(command, "--load-format") == "dummy");
  CHECK(value_of(command, "--tensor-parallel-size") == "2");
  CHECK(value_of(command, "--gpu-memory-utilization") == "0.5");
  CHECK(value_of(command, "--weight-transfer-config") == R"({"backend":"ipc"})");
  CHECK(has(command, "--enable-sleep-mode"));
  CHECK(command.env.at("CUDA_VISIBLE_DEVICES") == "GPU-aaaa,GPU-bbbb");
  CHECK(command.env.at("VLLM_SERVER_DEV_MODE") == "1");
  CHECK(command.env.at("VLLM_ALLOW_INSECURE_SERIALIZATION") == "1");
  CHECK(command.env.at("NCCL_NVLS_ENABLE") == "0");
  CHECK(command.log_path == "/run/logs/engine-2.log");
}

TEST_CASE("a server without GPUs loads folders: no transfer, no devices, no pickles") {
  VllmLaunch launch = some_launch();
  launch.device_uuids.clear();
  launch.transfer_backend = "";
  launch.sleeps = false;
  launch.load_weights = true;
  const proc::Command command = vllm_command(launch);
  CHECK(value_of(command, "--load-format") == "auto");
  for (const char* flag : {"--weight-transfer-config", "--gpu-memory-utilization", "--enable-sleep-mode"}) {
    CHECK_FALSE(has(command, flag));
  }
  CHECK(command.env.at("CUDA_VISIBLE_DEVICES").empty());
  CHECK(command.env.at("VLLM_API_KEY").empty());
  CHECK_FALSE(command.env.contains("VLLM_ALLOW_INSECURE_SERIALIZATION"));
}

TEST_CASE("a step has room for a token of every sequence, unless the user says how much it has") {
  VllmLaunch launch = some_launch();
  const auto batch = [&] { return value_of(vllm_command(launch), "--max-num-batched-tokens"); };
  launch.max_num_seqs = 2048;  // what a server takes by itself
  CHECK(batch().empty());
  launch.max_num_seqs = 2049;
  CHECK(batch() == "8192");
  launch.max_num_seqs = 10000;
  CHECK(batch() == "10000");
  launch.args = {"--max_num_batched_tokens=12000"};
  CHECK(batch().empty());
}

TEST_CASE("the user's arguments and environment come last, and win") {
  VllmLaunch launch = some_launch();
  launch.command = {"/opt/python", "-m", "vllm.entrypoints.cli.main", "serve"};
  launch.args = {"--enforce-eager", "--attention-backend", "TRITON_ATTN"};
  launch.env = {"NCCL_NVLS_ENABLE=1", "EMPTY=", "A=b=c"};
  const proc::Command command = vllm_command(launch);
  CHECK(command.argv.front() == "/opt/python");
  CHECK(command.argv.back() == "TRITON_ATTN");
  CHECK(command.env.at("NCCL_NVLS_ENABLE") == "1");
  CHECK(command.env.at("EMPTY").empty());
  CHECK(command.env.at("A") == "b=c");
}

TEST_CASE("the shown command can be given to a shell, and shows no secret") {
  VllmLaunch launch = some_launch();
  launch.api_key = "hush";
  launch.env = {"NOTE=it's here"};
  const std::string text = command_text(vllm_command(launch));
  CHECK(text.find("hush") == std::string::npos);
  CHECK(text.find("VLLM_API_KEY=***") != std::string::npos);
  const Json json = command_json(vllm_command(launch));
  CHECK(json["env"]["VLLM_API_KEY"] == "***");
  CHECK(json["env"]["NOTE"] == "it's here");
  CHECK(json["argv"][1] == "serve");
  CHECK(text.find(R"(NOTE='it'\''s here')") != std::string::npos);
  CHECK(text.find(R"(--weight-transfer-config '{"backend":"ipc"}')") != std::string::npos);
  CHECK_FALSE(has(vllm_command(launch), "hush"));
}
