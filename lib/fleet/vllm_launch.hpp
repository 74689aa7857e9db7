// How a vLLM server is started: its command line and environment, from its place in the plan. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "proc/agent.hpp"

namespace vime::fleet {

struct VllmLaunch {
  std::vector<std::string> command = {"vllm", "serve"};
  std::vector<std::string> args;  // the user's
  std::vector<std::string> env;   // the user's, NAME=value each
  int id = 0;
  std::string model_dir;      // config and tokenizer, and the weights where load_weights
  bool load_weights = false;  // false: they come by the first push
  std::string served_model;
  uint16_t port = 0;
  std::string dtype;                      // "float32", "bfloat16"
  int tensor_parallel_size = 1;           // workers
  std::vector<std::string> device_uuids;  // of GPUs; empty: the CPU
  std::string transfer_backend;           // "ipc", "nccl"; "" = weights come from folders
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  double gpu_memory_utilization = 0.9;
  bool sleeps = false;  // gives its memory up while the trainer works
  std::string logprobs_mode;
  int64_t seed = 0;
  std::string api_key;
  std::string log_dir;
};

// The key travels in the environment, since everybody on the machine may read a command line.
proc::Command vllm_command(const VllmLaunch& launch);

// The command as a shell would take it, with what is secret left out.
std::string command_text(const proc::Command& command);
// The same as {"env": {NAME: value}, "argv": [..]}.
Json command_json(const proc::Command& command);

}  // namespace vime::fleet
