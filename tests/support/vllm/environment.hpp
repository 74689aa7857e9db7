// What the stand-in takes from its environment: vLLM's own variables, and VIME_STAND_IN_* for what the real server has
// no flags for.
#pragma once

#include <string>
#include <vector>

#include "support/vllm/serve_arguments.hpp"

namespace vime::stand_in {

struct Environment {
  bool dev_mode = false;                // VLLM_SERVER_DEV_MODE: without it the RL routes are 404
  bool insecure_serialization = false;  // VLLM_ALLOW_INSECURE_SERIALIZATION
  std::string visible_devices;          // CUDA_VISIBLE_DEVICES
  std::string python_path;              // PYTHONPATH, where a module `ray` may lie
  std::string flavour;                  // VIME_STAND_IN_VERSION: G2a, G2b, G2c, G3 (the default) or a version to claim
  std::string uuids;  // VIME_STAND_IN_UUIDS: of the machine's GPUs, with commas between; CUDA_VISIBLE_DEVICES chooses
  std::string trace;  // VIME_STAND_IN_TRACE: file for what goes through the TCPStore's connections, and for HTTP calls
  bool engine_process = false;  // VIME_STAND_IN_ENGINE_PROCESS=1: a child that outlives a killed server, as vLLM's does
  int step_ms = 0;              // VIME_STAND_IN_STEP_MS: a pause after every step, for requests that last
  std::string fault;            // VIME_STAND_IN_FAULT (faults.hpp)
};

Environment read_environment();

// The UUIDs of the server's workers. Error{refused} as vLLM refuses a world that is larger than the visible GPUs.
std::vector<std::string> worker_uuids(const Environment& environment, const ServeArguments& arguments);

// Whether Python would find a module of that name on the path (an empty file will do).
bool has_module(const std::string& python_path, const std::string& name);

}  // namespace vime::stand_in
