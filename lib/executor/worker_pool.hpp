// The engine's end of its workers: starts them, sends each call to all, waits for all answers, and ends them. See
// start_workers.hpp.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "base/deadline.hpp"
#include "base/files.hpp"
#include "executor/frames.hpp"
#include "executor/start_workers.hpp"

namespace vime::executor {

class WorkerPool final : public engine::Executor {
 public:
  WorkerPool(ExecutorOptions options, const arch::ModelConfig& config);
  ~WorkerPool() override;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  std::vector<pid_t> pids() const;

  // What the first worker's forward passes took since this was last asked.
  struct Figures {
    int64_t steps = 0;
    double seconds = 0;
  };
  Figures figures();

  int world_size() const override { return static_cast<int>(workers_.size()); }
  int64_t max_slots() const override { return slots_; }
  int64_t max_model_len() const override { return options_.max_model_len; }
  int64_t max_batch_rows() const override { return options_.rows_per_step; }
  std::vector<engine::Sampled> step(const engine::Batch& batch) override;
  void init_transfer(const Json& init_info) override;
  void start_update() override;
  void update(const Json& update_info) override;
  void finish_update() override;
  std::map<std::string, uint64_t> checksums() override;
  void reload(const std::string& model_dir) override;
  void sleep(int level) override;
  void wake(bool weights, bool kv_cache) override;

 private:
  struct Link {
    pid_t pid = 0;
    UniqueFd socket;
  };
  // What one worker made of a call.
  struct Outcome {
    bool ended = false;
    bool silent = false;
    Frame frame;
  };

  void fork_worker(const arch::ModelConfig& config, int index, const std::string& token);
  std::vector<Frame> call(const std::string& what, const Frame& request, std::chrono::milliseconds timeout,
                          std::size_t workers);
  std::vector<Json> control(const Json& request, std::chrono::milliseconds timeout, std::size_t workers);
  std::vector<Json> control(const Json& request) { return control(request, options_.control_timeout, workers_.size()); }
  void collect(std::vector<Outcome>& outcomes, const Deadline& deadline);
  void judge(const std::string& what, const std::vector<Outcome>& outcomes, const Deadline& deadline);
  [[noreturn]] void break_down(const std::string& reason);
  void end_all(std::chrono::milliseconds grace);

  ExecutorOptions options_;
  int64_t slots_ = 0;  // that every worker has
  std::vector<Link> workers_;
  std::string broken_;  // not empty: all workers have been ended, for this reason
};

}  // namespace vime::executor
