// `vime engine` after its arguments are parsed: workers, HTTP front, the ready message, and an orderly end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "executor/start_workers.hpp"

namespace vime::executor {

struct EngineOptions {
  ExecutorOptions workers;  // model_dir, load_weights (false: load format dummy), device uuids, run id, limits
  std::string address = "127.0.0.1";
  uint16_t port = 0;              // 0: the kernel chooses
  std::string token;              // run token that requests must carry; "" for none
  std::string served_model_name;  // "": model_dir
  uint64_t seed = 0;              // of requests that bring none
};

// Puts something between the front and the workers; tests plant faults with it.
using WrapExecutor = std::function<std::unique_ptr<engine::Executor>(std::unique_ptr<engine::Executor>)>;

// Runs until SIGTERM, SIGINT (status 0) or until a worker fails (status 4, after the clients have been answered).
// Announces {"port", "address", "slots"} through proc::announce_ready when it serves. Call from the main thread while
// it is the only one. Throws Error when it cannot start.
int serve_engine(const EngineOptions& options, const WrapExecutor& wrap = {});

}  // namespace vime::executor
