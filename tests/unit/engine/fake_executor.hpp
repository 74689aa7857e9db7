// An executor without a model: the next token is a function of the slot's token history, the seed and the step, so a
// test can compute what any request must give. It also checks that rows continue their slot. Controls: fail at a step,
// fail in a weight call.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "engine/executor.hpp"

namespace vime::engine {

class FakeExecutor final : public Executor {
 public:
  int64_t slots = 4;
  int64_t model_len = 64;
  int64_t rows = 16;
  int workers = 2;
  int32_t vocab = 50;

  // A token history, folded, so that long sequences stay cheap.
  struct History {
    int64_t tokens = 0;
    uint64_t key = 0;
    void add(int32_t token) {
      key = mix_key(key, static_cast<uint64_t>(token));
      ++tokens;
    }
  };

  static int32_t next_token(const History& history, uint64_t seed, int64_t step, const std::vector<int32_t>& banned,
                            int32_t vocab_size) {
    const uint64_t key = mix_key(history.key, seed, static_cast<uint64_t>(step));
    auto token = static_cast<int32_t>(key % static_cast<uint64_t>(vocab_size));
    while (std::find(banned.begin(), banned.end(), token) != banned.end()) token = (token + 1) % vocab_size;
    return token;
  }
  static float logprob_of(int32_t token) { return -0.125f * static_cast<float>(token + 1); }

  // What a forced token is worth after this history; -1 / 8 and lower, exact in a float.
  static Sampled looked_up(const History& before, int32_t token, int32_t vocab_size) {
    const uint64_t key = mix_key(before.key, static_cast<uint64_t>(token));
    Sampled found;
    found.token = token;
    found.logprob = -0.125f * static_cast<float>(1 + key % 40);
    found.rank = 1 + static_cast<int32_t>(key % 3);
    found.top_token = found.rank == 1 ? token : static_cast<int32_t>(key % static_cast<uint64_t>(vocab_size));
    found.top_logprob = found.rank == 1 ? found.logprob : -0.0625f;
    return found;
  }
  // Of a prompt's tokens from the second on.
  std::vector<PromptLogprob> expected_prompt_logprobs(const std::vector<int32_t>& prompt) const {
    History history;
    std::vector<PromptLogprob> logprobs;
    for (std::size_t i = 0; i + 1 < prompt.size(); ++i) {
      history.add(prompt[i]);
      const Sampled found = looked_up(history, prompt[i + 1], vocab);
      logprobs.push_back({found.logprob, found.rank, found.top_token, found.top_logprob});
    }
    return logprobs;
  }

  // What a request of this prompt gives in `count` tokens.
  std::vector<int32_t> expected(const std::vector<int32_t>& prompt, uint64_t seed, int64_t count) const {
    History history;
    for (const int32_t token : prompt) history.add(token);
    std::vector<int32_t> output;
    for (int64_t step = 0; step < count; ++step) {
      output.push_back(next_token(history, seed, step, {}, vocab));
      history.add(output.back());
    }
    return output;
  }

  int world_size() const override { return workers; }
  int64_t max_slots() const override { return slots; }
  int64_t max_model_len() const override { return model_len; }
  int64_t max_batch_rows() const override { return rows; }

  std::vector<Sampled> step(const Batch& batch) override {
    {
      std::unique_lock lock(mutex_);
      ++steps_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_ || permits_ > 0; });
      permits_ = 0;
      if (fail_at_step != 0 && steps_ >= fail_at_step)
        throw Error(ErrorKind::process_failed, "worker 1 was killed by signal 9");
      most_rows = std::max(most_rows, batch.rows.size());
    }
    std::vector<History> after;  // each row
    for (const TokenRow& row : batch.rows) {
      History& history = histories_[row.slot];
      if (row.position == 0) history = {};
      VIME_CHECK(row.position == history.tokens, "a row does not continue its slot");
      VIME_CHECK(row.slot >= 0 && row.slot < slots, "no such slot");
      history.add(row.token);
      after.push_back(history);
    }
    VIME_CHECK(static_cast<int64_t>(batch.rows.size()) <= rows, "too many rows");
    std::vector<Sampled> sampled;
    int32_t last_row = 0;
    for (const SampleSpec& spec : batch.samples) {
      VIME_CHECK(spec.row >= last_row, "samples are in the order of their rows");
      last_row = spec.row;
      const History& history = after.at(static_cast<std::size_t>(spec.row));
      if (spec.forced >= 0) {
        sampled.push_back(looked_up(history, spec.forced, vocab));
        continue;
      }
      const int32_t token = next_token(history, spec.seed, spec.step, spec.banned, vocab);
      sampled.push_back({token, logprob_of(token)});
    }
    return sampled;
  }

  void init_transfer(const Json& info) override {
    act("init");
    init_infos.push_back(info);
  }
  void start_update() override { act("start"); }
  void update(const Json& info) override {
    act("update");
    update_infos.push_back(info);
  }
  void finish_update() override { act("finish"); }
  std::map<std::string, uint64_t> checksums() override {
    act("checksums");
    return {{"a", 1}, {"b", 0xabcdefu}};
  }
  void reload(const std::string& folder) override {
    act("reload");
    reloaded = folder;
  }
  void sleep(int level) override {
    act("sleep");
    slept_level = level;
  }
  void wake(bool weights, bool kv_cache) override {
    act("wake");
    woken.emplace_back(weights, kv_cache);
  }

  // Steps wait until release().
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  // One held step may go on.
  void allow_step() {
    const std::lock_guard lock(mutex_);
    permits_ = 1;
    changed_.notify_all();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  // Waits until this many steps have begun. False after 20 s.
  bool wait_for_steps(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return steps_ >= count; });
  }
  int steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

  // Read by the engine thread; set before the call that is to fail.
  std::map<std::string, ErrorKind> failing;
  int fail_at_step = 0;
  std::size_t most_rows = 0;
  std::vector<std::string> calls;
  std::vector<Json> init_infos;
  std::vector<Json> update_infos;
  std::string reloaded;
  int slept_level = 0;
  std::vector<std::pair<bool, bool>> woken;

 private:
  void act(const std::string& call) {
    calls.push_back(call);
    if (const auto found = failing.find(call); found != failing.end()) throw Error(found->second, call + " went wrong");
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int permits_ = 0;
  int steps_ = 0;
  std::map<int32_t, History> histories_;
};

}  // namespace vime::engine
