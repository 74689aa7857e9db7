#include "reward/rewards.hpp"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "reward/builtin.hpp"
#include "reward/scorer.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {
namespace {

constexpr milliseconds kTick{20};

bool is_external(const std::string& type) {
  return type == "command" || type == "http";
}

struct Group {
  std::vector<Score> scores;
  size_t open = 0;
  std::function<void(std::vector<Score>)> done;
};

void expect_range(const std::string& key, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorKind::refused, "reward." + key + ": expected " + std::to_string(least) + " to " +
                                      std::to_string(most) + ", found " + std::to_string(value));
}

}  // namespace

struct Rewards::State {
  State(const RewardOptions& o) : options(o), builtins(o.pattern) {}

  const RewardOptions options;
  Builtins builtins;
  Tally tally;
  std::deque<std::shared_ptr<Group>> finished;  // in the order in which they became so
  size_t pending = 0;
  std::unique_ptr<Scorer> scorer;  // after what its callbacks use

  void settle(const std::shared_ptr<Group>& group, size_t first, std::vector<Score> scores) {
    for (size_t i = 0; i < scores.size(); ++i) group->scores[first + i] = std::move(scores[i]);
    group->open -= scores.size();
    if (group->open == 0) finished.push_back(group);
  }
  void deliver() {
    while (!finished.empty()) {
      const std::shared_ptr<Group> group = std::move(finished.front());
      finished.pop_front();
      --pending;
      for (const Score& score : group->scores) tally.add(score);
      group->done(std::move(group->scores));
    }
  }
  const std::string& type_of(const ScoreItem& item) const { return item.type.empty() ? options.type : item.type; }
};

Rewards::Rewards(const RewardOptions& options, WorkerLauncher launcher) {
  check_options(options);
  state_ = std::make_unique<State>(options);
  if (options.type == "command") state_->scorer = make_command_scorer(options, std::move(launcher));
  if (options.type == "http") state_->scorer = make_service_scorer(options);
}

Rewards::~Rewards() = default;

void Rewards::submit(std::vector<ScoreItem> items, std::function<void(std::vector<Score>)> done) {
  State& state = *state_;
  size_t external = 0;
  for (const ScoreItem& item : items) {
    const std::string& type = state.type_of(item);
    if (!is_builtin(type) && type != state.options.type)
      refuse_type("reward type of sample " + std::to_string(item.sample), type, !is_external(state.options.type));
    external += is_external(type) ? 1 : 0;
  }
  if (state.options.group && external != 0 && external != items.size()) {
    throw Error(ErrorKind::refused,
                "sample " + std::to_string(items.front().sample) +
                    ": reward.group_rm scores a group in one call, and its samples have several types");
  }
  auto group = std::make_shared<Group>();
  group->scores.resize(items.size());
  group->open = items.size();
  group->done = std::move(done);
  ++state.pending;
  if (items.empty()) state.finished.push_back(group);
  if (state.options.group && external > 0) {
    state.scorer->submit(std::move(items),
                         [&state, group](std::vector<Score> scores) { state.settle(group, 0, std::move(scores)); });
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string type = state.type_of(items[i]);
    if (!is_external(type)) {
      state.settle(group, i, {state.builtins.score(type, items[i])});
      continue;
    }
    std::vector<ScoreItem> one;
    one.push_back(std::move(items[i]));
    state.scorer->submit(std::move(one),
                         [&state, group, i](std::vector<Score> scores) { state.settle(group, i, std::move(scores)); });
  }
}

void Rewards::poll() {
  if (state_->scorer) state_->scorer->poll();
  state_->deliver();
}

void Rewards::finish(Deadline deadline, const std::function<void()>& check) {
  for (;;) {
    if (check) check();
    poll();
    if (state_->pending == 0) return;
    if (deadline.passed()) break;
    if (state_->scorer) state_->scorer->wait(std::min(kTick, deadline.remaining()));
  }
  if (state_->scorer) state_->scorer->cancel();
  state_->deliver();
}

size_t Rewards::pending() const {
  return state_->pending;
}

RewardCounters Rewards::counters() const {
  RewardCounters counters;
  counters.tally = state_->tally;
  if (state_->scorer) state_->scorer->count(counters);
  return counters;
}

void check_options(const RewardOptions& options) {
  if (!is_builtin(options.type) && !is_external(options.type)) refuse_type("reward.type", options.type, false);
  if (options.type == "command" && (options.command.empty() || options.command[0].empty())) {
    throw Error(ErrorKind::refused, "reward.command: missing; reward.type \"command\" needs a program",
                "reward: {type: command, command: [python3, my_reward.py]}");
  }
  if (options.type == "http" && options.url.rfind("http://", 0) != 0)
    throw Error(ErrorKind::refused, "reward.url: expected http://host:port/path, found \"" + options.url + "\"");
  if (options.group && !is_external(options.type))
    throw Error(ErrorKind::refused,
                "reward.group_rm: built-in rewards score each sample on its own; only command and http score groups");
  if (options.reward_key.empty() || options.reward_key.front() == '.' || options.reward_key.back() == '.')
    throw Error(ErrorKind::refused,
                "reward.reward_key: expected keys with dots between, found \"" + options.reward_key + "\"");
  expect_range("num_workers", options.num_workers, 1, 1024);
  expect_range("concurrency", options.concurrency, 0, 4096);
  expect_range("max_restarts", options.max_restarts, 0, 1000000);
  expect_range("max_retries", options.max_retries, 0, 1000);
  if (options.timeout <= milliseconds(0)) throw Error(ErrorKind::refused, "reward.timeout: expected more than 0 s");
  if (options.type == "regex" || !options.pattern.empty()) Regex probe(options.pattern);
}

}  // namespace vime::reward
