// How an embedded engine is started: its command line, from its place in the plan. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proc/agent.hpp"

namespace vime::fleet {

struct EngineLaunch {
  std::string vime_binary;
  std::string run_id;
  std::string token;
  int id = 0;
  std::string device = "cpu";             // or "cuda"
  std::string dtype = "float32";          // of the weights
  std::vector<std::string> device_uuids;  // one worker each
  // On GPUs only: see executor/start_workers.hpp.
  bool deterministic = false;
  double gpu_memory_utilization = 0.9;
  std::string model_dir;      // config and tokenizer, and the weights where they are loaded
  std::string served_model;   // the name that requests give
  bool load_weights = false;  // from model_dir; false: they come by the first push
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  std::string logprobs_mode;
  int64_t transfer_timeout_ms = 0;
  std::string log_dir;
};

std::string engine_role(int id);     // "engine-0"
std::string trainer_role(int rank);  // "trainer-0"

// The token travels in the environment (VIME_RUN_TOKEN), since everybody on the machine may read a command line.
proc::Command engine_command(const EngineLaunch& launch);

}  // namespace vime::fleet
