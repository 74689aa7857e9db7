// The engine behind its routes: scheduler, pause, sleep and weight update over one Executor. Owned by the engine
// thread. Calls that reach the executor block until all workers have answered; the others return at once.
//
// Requests run when the weights are complete, no update is active, nothing is asleep and the engine is not paused;
// otherwise they wait, except that they are refused while the weights were never pushed or are incomplete.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/executor.hpp"
#include "engine/request.hpp"
#include "engine/scheduler.hpp"
#include "engine/transfer_state.hpp"

namespace vime::engine {

// Status 200 and no error, or why not: 400 and 409 nothing was changed, 500 what vLLM's worker would have raised.
struct Verdict {
  int status = 200;
  std::string error;
  bool ok() const { return status == 200; }
};

enum class PauseMode { abort, wait, keep };

struct CoreOptions {
  std::vector<int32_t> eos_ids;
  bool weights_loaded = true;  // false: started without weights (load format dummy)
  std::string model_dir;       // what /collective_rpc reload_weights reads by default
  uint64_t seed = 0;           // of requests without one
};

class EngineCore {
 public:
  EngineCore(Executor& executor, CoreOptions options);

  // All prompts of a call or none. `numbers` receives one number per generation.
  Verdict submit(std::vector<Generation> generations, std::vector<uint64_t>* numbers);
  // Ends generations whose client has gone.
  void abandon(const std::vector<uint64_t>& numbers);
  int64_t abort_ids(const std::vector<std::string>& ids);
  int64_t abort_all();

  // `done` is called at once, or for PauseMode::wait when the running sequences have finished.
  using Done = std::function<void(Verdict)>;
  void pause(PauseMode mode, bool clear_cache, Done done);
  Verdict resume();
  bool is_paused() const { return paused_ || asleep_.scheduling; }

  // Level 0 only stops scheduling, 1 frees the KV cache and sets the weights aside, 2 drops them.
  void sleep(int level, PauseMode mode, Done done);
  struct Parts {
    bool weights = false;
    bool kv_cache = false;
    bool scheduling = false;
  };
  Verdict wake(Parts parts);
  bool is_sleeping() const { return asleep_.weights || asleep_.kv_cache || is_paused(); }

  Verdict init_transfer(const Json& init_info);
  Verdict start_update();
  Verdict update(const Json& update_info);
  Verdict finish_update(const std::string& version);
  Verdict set_version(const std::string& version);
  const std::string& version() const { return transfer_.version(); }
  Verdict checksums(std::map<std::string, uint64_t>& sums);
  Verdict reload(const std::string& model_dir);  // "": the folder it was started with
  void preempt_running();

  // Runs one step. False: nothing can run until something changes. An executor that throws fails the engine for good.
  bool step();

  // Answers everything that is in flight with an error, before the engine goes away.
  void shut_down();

  bool failed() const { return failed_; }
  const std::string& failure() const { return failure_; }
  SchedulerCounts counts() const { return scheduler_.counts(); }
  int world_size() const { return executor_.world_size(); }

 private:
  bool may_run() const;
  Verdict quiet_verdict(const std::string& action) const;
  void quiesce(PauseMode mode, bool drop_kv, std::function<void()> then);
  void finish_draining();
  void fail(const std::string& reason);
  Verdict guarded(const std::string& what, bool spoils_weights, const std::function<void()>& action);
  void put_to_sleep(int level, const Done& done);

  Executor& executor_;
  CoreOptions options_;
  Scheduler scheduler_;
  TransferState transfer_;
  bool paused_ = false;
  Parts asleep_;
  std::vector<std::function<void()>>
      after_drain_;  // not empty: nothing is admitted until the running ones have finished
  bool failed_ = false;
  std::string failure_;
};

}  // namespace vime::engine
