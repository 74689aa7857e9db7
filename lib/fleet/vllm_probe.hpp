// What a vLLM server says of itself before a run uses it: its release, its model, its workers, and whether the routes
// that a push needs are there. Every call has a deadline.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "http/client.hpp"
#include "weights/engine_client.hpp"

namespace vime::fleet {

struct ServerFacts {
  std::string version;       // of GET /version
  std::string served_model;  // the first of GET /v1/models
  std::optional<int64_t> max_model_len;
  // The routes of pushes and pauses exist; without them nothing of what follows is known.
  bool dev_mode = false;
  int world_size = 0;
  std::string dtype;             // "float32"; "" where the server does not say
  std::string transfer_backend;  // "" = none configured
  std::string logprobs_mode;     // "" where the server does not say
  bool sleep_mode = false;
  bool insecure_serialization = false;  // pickles are read
  std::string device = {};              // "cpu", "cuda"; "" where the server does not say
  std::string quantization = {};        // "" = none
  std::string model_dir = {};           // that it was started with: a folder, or a name
};

// Error{process_failed} names the server, the route and what came instead.
ServerFacts ask_server(http::Client& client, const weights::EngineAddress& address, std::chrono::milliseconds timeout);

// What a run needs of a server.
struct ServerNeeds {
  int world_size = 1;
  std::string dtype;
  int64_t max_model_len = 0;
  std::string transfer_backend;  // "ipc", "nccl"; "" = folders
  std::string logprobs_mode = "processed_logprobs";
  bool sleeps = false;
  bool packed_ipc = false;  // a staging that is overwritten, see weights/engine_protocol.hpp
};
// One sentence for each thing that the server cannot do, with the cure; empty: it fits.
std::vector<std::string> server_problems(const ServerFacts& facts, const ServerNeeds& needs);
// What is no problem but worth a word: "" when nothing is.
std::string server_warning(const ServerFacts& facts);

}  // namespace vime::fleet
