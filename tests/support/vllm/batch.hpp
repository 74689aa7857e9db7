// Continuous batching over the model: which sequences run, what a step computes, and how sequences end. Owned by the
// engine's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/vllm/generation.hpp"
#include "support/vllm/model.hpp"
#include "support/vllm/prefix_cache.hpp"

namespace vime::stand_in {

struct BatchOptions {
  int64_t slots = 1;
  int64_t max_model_len = 1;
  std::string logprobs_mode;
  std::vector<int32_t> eos_ids;
  bool prefix_caching = true;
  int64_t block_size = 1;
  uint64_t seed = 0;
};

class Batch {
 public:
  Batch(Model& model, BatchOptions options);

  void add(const std::shared_ptr<Work>& work);
  // One step; `admit`: whether waiting sequences may take free slots. False when there is nothing to run.
  bool step(bool admit, const std::string& version);
  // Works that have ended, for whoever waits for them, go through this.
  void abort(const std::function<bool(const Work&)>& wanted, int64_t* count = nullptr);
  void fail_all(const std::string& error);
  // Running sequences lose what was computed and wait again in front.
  void preempt_running();
  // Whether a running or waiting prompt holds an id that the embedding does not have.
  bool has_unknown_token() const;
  // The weights are about to change.
  void keep_weights();
  void weights_changed() { ++generation_; }
  void reset_prefix_cache() { cache_.clear(); }

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  bool is_idle() const { return running_.empty() && waiting_.empty(); }

 private:
  struct Sequence {
    std::shared_ptr<Work> work;
    std::size_t index = 0;  // of the choice
    uint64_t seed = 0;
    int32_t slot = -1;
    int64_t computed = 0;  // tokens whose keys and values lie in the slot
  };
  using SequencePtr = std::shared_ptr<Sequence>;

  std::vector<int32_t> tokens_of(const Sequence& sequence) const;
  void restore_cached();
  void run_under(int64_t generation, const std::vector<engine::TokenRow>& rows);
  void look_up_prompt(Sequence& sequence, const float* logits, int64_t rows);
  void append(Sequence& sequence, const float* logits, const std::string& version);
  TokenPlace place_of(int32_t token, float logprob, const float* logits, int32_t top, bool scaled,
                      double temperature) const;
  void finish(Sequence& sequence, const std::string& reason);
  void drop_finished();

  Model& model_;
  BatchOptions options_;
  PrefixCache cache_;
  int64_t generation_ = 0;  // of the weights
  uint64_t works_ = 0;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;
  std::vector<int32_t> free_slots_;
};

}  // namespace vime::stand_in
