// The engine behind the routes: batch, pause, sleep and weight updates under one lock, with a thread that steps. Calls
// wait for the step in progress and, where vLLM's do, until they are done; an update may block for the trainer, and
// then everything that needs the engine waits, as it does for vLLM's engine core. The engine may die of a call or of a
// step; from then on every call throws EngineDeath, and the process ends some seconds later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "support/vllm/batch.hpp"
#include "support/vllm/faults.hpp"
#include "support/vllm/transfer.hpp"

namespace vime::stand_in {

enum class PauseMode { abort, wait, keep };

struct EngineOptions {
  std::string model_dir;
  std::string load_format;
  int workers = 1;
  bool sleep_mode = false;
  std::chrono::milliseconds between_steps{0};
};

class Engine {
 public:
  // Loads the folder's weights unless the format is dummy.
  Engine(Model& model, BatchOptions batch, const Flavour& flavour, TransferOptions transfer, EngineOptions options,
         Faults& faults, Trace& trace);
  ~Engine();

  // Returns when all works are done; `gone` says whether the client still waits, and aborts them when it does not.
  void generate(const std::vector<std::shared_ptr<Work>>& works, const std::function<bool()>& gone);
  int64_t abort_ids(const std::vector<std::string>& ids);  // a call's id names all its prompts
  int64_t abort_all();

  void pause(PauseMode mode, bool clear_cache);
  void resume();
  bool is_paused();
  void sleep(int level, PauseMode mode);
  void wake(const std::vector<std::string>& tags);  // none: all
  bool is_sleeping();
  void reset_prefix_cache(bool running_requests);

  // `planted`: not empty, and a worker raises that instead of doing it.
  void init(const Json& info, const std::string& planted);
  void start(const std::string& planted);
  void update(const Json& info, const std::string& planted);
  void finish(const std::string* version, const std::string& planted);
  Json collective_rpc(const std::string& method, const Json& arguments, const Json& named, const std::string& planted);
  std::string version();
  void set_version(const std::string& version);

  bool is_dead() const { return dead_; }
  int64_t load() const { return load_; }  // works in flight

 private:
  using Lock = std::unique_lock<std::mutex>;
  Lock enter();
  void run(const std::stop_token& stop);
  bool may_step() const;
  void die(const std::string& reason);
  void call_workers(const std::string& planted, const std::function<void()>& call);
  void quiesce(Lock& lock, PauseMode mode, bool clear_cache);
  void reload_weights(const Json& arguments, const Json& named);
  void update_config(const Json& overrides);
  void load_folder(const std::string& folder);
  LoadFault next_load_fault();

  Model& model_;
  Faults& faults_;
  EngineOptions options_;
  LayerLoad layers_;
  Transfer transfer_;
  Batch batch_;
  std::mutex mutex_;
  std::atomic<int> entering_ = 0;  // calls that wait for the lock
  std::condition_variable changed_;
  bool paused_ = false;
  int draining_ = 0;  // pauses that wait for running sequences: nothing is admitted
  bool weights_asleep_ = false;
  bool cache_asleep_ = false;
  bool weights_dropped_ = false;
  std::string version_ = "default";
  std::atomic<bool> dead_ = false;
  std::atomic<int64_t> load_ = 0;
  std::jthread thread_;
};

}  // namespace vime::stand_in
