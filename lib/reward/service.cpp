// A service as a reward: POSTs of answer.hpp's objects, at most `concurrency` in flight. A lost connection, a timeout,
// 429 and 5xx are tried again after a growing wait while the sample's deadline allows; any other status is final.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "base/random.hpp"
#include "base/strings.hpp"
#include "http/client.hpp"
#include "reward/answer.hpp"
#include "reward/scorer.hpp"

namespace vime::reward {
namespace {

constexpr milliseconds kLongestBackoff{30000};
constexpr int kDefaultConcurrency = 64;

struct Call {
  std::string body;
  size_t items = 1;
  int64_t sample = 0;
  Scorer::Done done;
  int attempts = 0;
  SteadyClock::time_point deadline{};  // set at the first attempt
  SteadyClock::time_point due{};       // of the next attempt
  std::string last_error;
};

// Filled by the client's thread. Shared, for an outcome may come while the scorer is being destroyed.
struct Arrivals {
  std::mutex mutex;
  std::condition_variable came;
  std::deque<std::pair<uint64_t, http::Outcome>> outcomes;
};

class ServiceScorer final : public Scorer {
 public:
  explicit ServiceScorer(const RewardOptions& options)
      : options_(options),
        at_once_(static_cast<size_t>(options.concurrency > 0 ? options.concurrency : kDefaultConcurrency)) {}

  void submit(std::vector<ScoreItem> items, Done done) override {
    Call call;
    const uint64_t id = ++last_id_;
    call.body = request_text(id, items, options_.group);
    call.items = items.size();
    call.sample = items.front().sample;
    call.done = std::move(done);
    calls_.emplace(id, std::move(call));
    fresh_.push_back(id);
  }
  void poll() override;
  void wait(milliseconds timeout) override;
  void cancel() override;
  void count(RewardCounters& counters) const override {
    counters.retries = retries_;
    counters.late = late_;
  }

 private:
  void send(uint64_t id);
  void take(uint64_t id, const http::Outcome& outcome);
  void retry(uint64_t id, const std::string& error);
  void finish(uint64_t id, std::vector<Score> scores);
  void fail(uint64_t id, Missing why, const std::string& problem);

  const RewardOptions options_;
  const size_t at_once_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Call> calls_;
  std::deque<uint64_t> fresh_;     // not sent yet
  std::vector<uint64_t> waiting_;  // for their next attempt
  size_t in_flight_ = 0;
  int64_t retries_ = 0, late_ = 0;
  const std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
  http::Client client_;
};

void ServiceScorer::send(uint64_t id) {
  Call& call = calls_.at(id);
  const auto now = SteadyClock::now();
  if (call.attempts++ == 0) call.deadline = now + options_.timeout;
  const auto left = std::chrono::ceil<milliseconds>(call.deadline - now);
  http::Request request;
  request.method = "POST";
  request.url = options_.url;
  request.body = call.body;
  request.what = "reward of sample " + std::to_string(call.sample);
  request.timeout = std::max(milliseconds(1), std::min(left, (options_.timeout + milliseconds(1)) / 2));
  ++in_flight_;
  client_.send(std::move(request), [id, arrivals = arrivals_](http::Outcome outcome) {
    const std::lock_guard lock(arrivals->mutex);
    arrivals->outcomes.emplace_back(id, std::move(outcome));
    arrivals->came.notify_one();
  });
}

void ServiceScorer::poll() {
  std::deque<std::pair<uint64_t, http::Outcome>> outcomes;
  {
    const std::lock_guard lock(arrivals_->mutex);
    outcomes.swap(arrivals_->outcomes);
  }
  for (const auto& [id, outcome] : outcomes) {
    --in_flight_;
    if (calls_.contains(id)) take(id, outcome);
  }
  const auto now = SteadyClock::now();
  for (size_t i = 0; i < waiting_.size() && in_flight_ < at_once_;) {
    if (now < calls_.at(waiting_[i]).due) {
      ++i;
      continue;
    }
    send(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  while (!fresh_.empty() && in_flight_ < at_once_) {
    send(fresh_.front());
    fresh_.pop_front();
  }
}

void ServiceScorer::take(uint64_t id, const http::Outcome& outcome) {
  if (!outcome.answered) {
    retry(id, outcome.error);
    return;
  }
  const int status = outcome.reply.status;
  if (status == 429 || status >= 500) {
    retry(id, http::status_text(outcome.reply));
    return;
  }
  if (status < 200 || status >= 300) {
    fail(id, Missing::failed, options_.url + " refused it: " + http::status_text(outcome.reply));
    return;
  }
  const std::optional<Json> answer = parse_answer(outcome.reply.body);
  if (!answer) {
    fail(id, Missing::malformed, options_.url + " answered with what is not JSON: " + quote(outcome.reply.body));
    return;
  }
  finish(id, read_answer(*answer, calls_.at(id).items, options_.group, options_.reward_key));
}

void ServiceScorer::retry(uint64_t id, const std::string& error) {
  Call& call = calls_.at(id);
  call.last_error = error;
  if (call.attempts > options_.max_retries) {
    fail(id, Missing::failed, "gave up after " + std::to_string(call.attempts) + " attempts, the last: " + error);
    return;
  }
  const int doublings = std::min(call.attempts - 1, 20);
  const milliseconds backoff = std::min(kLongestBackoff, options_.retry_backoff * (int64_t{1} << doublings));
  // Half of the wait is jitter, keyed by call and attempt: the same run waits the same.
  const double share = 0.5 + 0.5 * uniform01(mix_key(id, static_cast<uint64_t>(call.attempts)));
  const milliseconds pause(static_cast<int64_t>(static_cast<double>(backoff.count()) * share));
  call.due = SteadyClock::now() + pause;
  if (call.due >= call.deadline) {
    ++late_;
    fail(id, Missing::timeout,
         "no reward within " + format_seconds(static_cast<double>(options_.timeout.count()) / 1000.0) + " and " +
             std::to_string(call.attempts) + " attempts, the last: " + error);
    return;
  }
  ++retries_;
  waiting_.push_back(id);
}

void ServiceScorer::finish(uint64_t id, std::vector<Score> scores) {
  const auto found = calls_.find(id);
  const Done done = std::move(found->second.done);
  calls_.erase(found);
  done(std::move(scores));
}

void ServiceScorer::fail(uint64_t id, Missing why, const std::string& problem) {
  const Call& call = calls_.at(id);
  const std::string text = "sample " + std::to_string(call.sample) + ": " + problem;
  finish(id, std::vector<Score>(call.items, no_score(why, text)));
}

void ServiceScorer::wait(milliseconds timeout) {
  auto until = SteadyClock::now() + timeout;
  for (const uint64_t id : waiting_) until = std::min(until, calls_.at(id).due);
  std::unique_lock lock(arrivals_->mutex);
  arrivals_->came.wait_until(lock, until, [&] { return !arrivals_->outcomes.empty(); });
}

void ServiceScorer::cancel() {
  fresh_.clear();
  waiting_.clear();
  while (!calls_.empty()) {
    const auto& [id, call] = *calls_.begin();
    ++late_;
    fail(id, Missing::timeout,
         "no answer of " + options_.url + " by the end of the wait for rewards" +
             (call.last_error.empty() ? "" : ", the last: " + call.last_error));
  }
}

}  // namespace

std::unique_ptr<Scorer> make_service_scorer(const RewardOptions& options) {
  return std::make_unique<ServiceScorer>(options);
}

}  // namespace vime::reward
