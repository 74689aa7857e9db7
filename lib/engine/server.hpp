// The embedded engine's front: vLLM's HTTP routes over an Executor. Three threads: HTTP (parses, never blocks), engine
// (owns the scheduler and calls the executor), replies (formats what was generated). The executor outlives the server
// and is called by the engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/executor.hpp"
#include "engine/request.hpp"

namespace vime::engine {

// What GET /version says; the suffix tells clients that update_info carries plain JSON handles.
inline constexpr const char* kEngineVersion = "0.1.0+vime.embedded";

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;       // 0: the kernel chooses
  std::string token;       // when set, requests must carry it as x-vime-token
  std::string model_name;  // id in /v1/models; requests that name another model are answered 404
  std::string model_dir;   // what /collective_rpc reload_weights reads by default
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_ids;
  bool weights_loaded = true;  // false: nothing is generated before the first push
  uint64_t seed = 0;           // of requests that bring none
  std::function<void(const std::string& reason)>
      on_failure;  // engine thread, once, when the executor has failed for good
};

class EngineServer {
 public:
  // Binds at once; throws Error{exhausted} when the port is taken.
  EngineServer(ServerOptions options, Executor& executor, TextCodec text);
  ~EngineServer();  // stop()
  EngineServer(const EngineServer&) = delete;
  EngineServer& operator=(const EngineServer&) = delete;

  void start();
  uint16_t port() const;
  // Waits for the step in progress, answers what is in flight with an error, closes the port and joins all threads.
  // Idempotent.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vime::engine
