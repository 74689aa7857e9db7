// Continuous batching: which tokens of which sequences run in the next step. Any number of requests may wait; as many
// run as there are KV slots. Decode rows go first, then prompts in order of arrival, cut over several steps where they
// do not fit in one. Owned by the engine thread; nothing here blocks. Knows no HTTP, no weights and no processes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/executor.hpp"
#include "engine/request.hpp"

namespace vime::engine {

struct SchedulerLimits {
  int64_t slots = 1;
  int64_t rows = 1;           // of one step
  int64_t max_model_len = 1;  // prompt + response of one sequence
};

struct SchedulerCounts {
  int64_t running = 0;               // sequences that hold a KV slot
  int64_t waiting = 0;               // sequences
  int64_t requests = 0;              // generations not yet done
  uint64_t prompt_tokens = 0;        // of all time, finished generations
  uint64_t generation_tokens = 0;    // of all time
  uint64_t finished[3] = {0, 0, 0};  // sequences by FinishReason
  uint64_t steps = 0;
};

class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, std::vector<int32_t> eos_ids, uint64_t seed);
  ~Scheduler();

  // Returns the number under which abort() knows it. Prompt and sampling have been checked against the limits.
  uint64_t add(Generation generation);

  // The next step, empty when there is nothing to run; `admit`: whether waiting sequences may take free slots.
  Batch next_batch(bool admit);
  // What the step of the last next_batch() drew, in the order of its samples. Calls `done` of what has finished.
  void accept(const std::vector<Sampled>& sampled, const std::string& weight_version);

  // End generations with finish reason abort and the tokens so far. Returns how many there were.
  int64_t abort(const std::vector<uint64_t>& numbers);
  int64_t abort_ids(const std::vector<std::string>& ids);
  int64_t abort_all();
  // Ends every generation with this error.
  void fail_all(const std::string& error);
  // Running sequences lose their slots and what was computed, and wait again in front; their tokens stay, and so do
  // prompt log-probs that are complete.
  void preempt_running();

  SchedulerCounts counts() const;

 private:
  struct Sequence;
  struct Work;
  struct Planned {
    Sequence* sequence = nullptr;
    int64_t rows = 0;
    int64_t prompt_logprobs = 0;  // looked up
    bool samples = false;
  };
  void admit_waiting();
  void plan(Sequence& sequence, int64_t rows, Batch& batch);
  int64_t plan_prompt_logprobs(const Sequence& sequence, int64_t rows, Batch& batch) const;
  void plan_draw(const Sequence& sequence, Batch& batch) const;
  void append(Sequence& sequence, const Sampled& sampled, const std::string& weight_version);
  void finish(Sequence& sequence, FinishReason reason);
  void drop_finished();
  int64_t abort_if(const std::function<bool(const Work&)>& wanted);

  SchedulerLimits limits_;
  std::vector<int32_t> eos_ids_;
  uint64_t seed_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, std::unique_ptr<Work>> works_;  // in order of arrival
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // in order of admission
  std::vector<int32_t> free_slots_;
  std::vector<Planned> planned_;
  std::vector<Work*> done_;  // finished since the last drop_finished()
  SchedulerCounts counts_;
};

}  // namespace vime::engine
