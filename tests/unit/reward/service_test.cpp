#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "http/server.hpp"
#include "reward/rewards.hpp"

using namespace vime;
using namespace vime::reward;

namespace {

using std::chrono::seconds;

// Answers what the sample's response says: "200 {...}", "500", "hold" (never), or one after the other "429|500|200
// {..}".
class Service {
 public:
  Service() : server_({}) {
    server_.route("POST", "/score", [this](const http::ServerRequest& request, const http::Responder& responder) {
      const std::lock_guard lock(mutex_);
      const Json body = parse_json(request.body);
      if (body.contains("group")) {
        responder.respond({200, "{\"rewards\":[1,2]}"});
        return;
      }
      const std::string script = body["response"].get<std::string>();
      const size_t attempt = attempts_[body["sample"].get<int64_t>()]++;
      std::vector<std::string> steps{""};
      for (const char c : script) {
        if (c == '|') {
          steps.emplace_back();
        } else {
          steps.back() += c;
        }
      }
      const std::string step = steps[std::min(attempt, steps.size() - 1)];
      ++in_flight_;
      most_in_flight = std::max(most_in_flight.load(), in_flight_);
      if (step == "hold") {
        held_.push_back(responder);
        return;
      }
      --in_flight_;
      responder.respond({std::stoi(step), step.size() > 4 ? step.substr(4) : "{\"error\":\"told to\"}"});
    });
    server_.start();
  }
  RewardOptions options() const {
    RewardOptions options;
    options.type = "http";
    options.url = "http://127.0.0.1:" + std::to_string(server_.port()) + "/score";
    options.timeout = milliseconds(20000);
    options.retry_backoff = milliseconds(5);
    return options;
  }
  size_t attempts(int64_t sample) {
    const std::lock_guard lock(mutex_);
    return attempts_[sample];
  }
  void stop() { server_.stop(); }
  std::atomic<size_t> most_in_flight{0};

 private:
  std::mutex mutex_;
  std::map<int64_t, size_t> attempts_;
  std::vector<http::Responder> held_;
  size_t in_flight_ = 0;
  http::Server server_;
};

std::vector<ScoreItem> items(const std::vector<std::string>& responses) {
  std::vector<ScoreItem> list;
  for (const std::string& response : responses) {
    ScoreItem item;
    item.response = response;
    item.sample = static_cast<int64_t>(list.size());
    list.push_back(std::move(item));
  }
  return list;
}

std::vector<Score> score(Rewards& rewards, const std::vector<std::string>& responses, Deadline deadline) {
  std::vector<Score> result;
  rewards.submit(items(responses), [&](std::vector<Score> scores) { result = std::move(scores); });
  rewards.finish(deadline, {});
  REQUIRE(result.size() == responses.size());
  return result;
}

}  // namespace

TEST_CASE("a service answers with an object or a bare number") {
  Service service;
  Rewards rewards(service.options());
  const auto scores = score(rewards, {"200 {\"reward\":0.5}", "200 1", "200 null", "200 oops", "200 {\"reward\":NaN}"},
                            Deadline(seconds(30)));
  CHECK(scores[0].value == 0.5);
  CHECK(scores[1].value == 1.0);
  CHECK(scores[2].why == Missing::null);
  CHECK(scores[3].why == Missing::malformed);
  CHECK(scores[4].why == Missing::not_finite);
}

TEST_CASE("a service scores a group in one call") {
  Service service;
  RewardOptions options = service.options();
  options.group = true;
  Rewards rewards(options);
  const auto scores = score(rewards, {"a", "b"}, Deadline(seconds(30)));
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].value == 2.0);
}

TEST_CASE("429 and 5xx are tried again, other refusals are final") {
  Service service;
  Rewards rewards(service.options());
  const auto scores =
      score(rewards, {"429|500|503|200 {\"reward\":1}", "400|200 {\"reward\":1}", "404"}, Deadline(seconds(30)));
  CHECK(scores[0].value == 1.0);
  CHECK(service.attempts(0) == 4);
  CHECK(scores[1].why == Missing::failed);
  CHECK(scores[1].problem.find("HTTP 400: told to") != std::string::npos);
  CHECK(service.attempts(1) == 1);
  CHECK(scores[2].why == Missing::failed);
  CHECK(rewards.counters().retries == 3);
}

TEST_CASE("a service that keeps failing is given up after max_retries") {
  Service service;
  RewardOptions options = service.options();
  options.max_retries = 2;
  Rewards rewards(options);
  const auto scores = score(rewards, {"500"}, Deadline(seconds(30)));
  CHECK(scores[0].why == Missing::failed);
  CHECK(scores[0].problem.find("gave up after 3 attempts, the last: HTTP 500") != std::string::npos);
  CHECK(service.attempts(0) == 3);
}

TEST_CASE("a refused connection is tried again and then told") {
  Service service;
  RewardOptions options = service.options();
  options.max_retries = 2;
  service.stop();
  Rewards rewards(options);
  const auto scores = score(rewards, {"200 1"}, Deadline(seconds(30)));
  CHECK(scores[0].why == Missing::failed);
  CHECK(scores[0].problem.find("connection refused") != std::string::npos);
  CHECK(rewards.counters().retries == 2);
}

TEST_CASE("a sample's deadline holds over all attempts, and the others do not wait for it") {
  Service service;
  RewardOptions options = service.options();
  options.timeout = milliseconds(400);
  Rewards rewards(options);
  const auto start = SteadyClock::now();
  const auto scores = score(rewards, {"hold", "200 1", "hold|200 0.5"}, Deadline(seconds(30)));
  CHECK(scores[0].why == Missing::timeout);
  CHECK(scores[1].value == 1.0);
  CHECK(scores[2].value == 0.5);  // the second attempt: the first got half of the time
  CHECK(SteadyClock::now() - start < seconds(10));
  CHECK(rewards.counters().late == 1);
}

TEST_CASE("one slow sample holds no other group back") {
  Service service;
  RewardOptions options = service.options();
  options.concurrency = 2;
  Rewards rewards(options);
  bool slow_done = false;
  int fast_done = 0;
  rewards.submit(items({"hold"}), [&](std::vector<Score>) { slow_done = true; });
  for (int i = 0; i < 20; ++i) {
    rewards.submit(items({"200 1", "429|200 1"}), [](std::vector<Score>) {});
    rewards.submit(items({"200 1"}), [&](std::vector<Score>) { ++fast_done; });
  }
  const Deadline deadline(seconds(9));
  while (fast_done < 20 && !deadline.passed()) rewards.poll();
  CHECK(fast_done == 20);
  CHECK_FALSE(slow_done);
  CHECK(service.most_in_flight <= 2);
}

TEST_CASE("what is open at the end of the wait gets no number, and a late answer is dropped") {
  Service service;
  Rewards rewards(service.options());
  const auto scores = score(rewards, {"hold", "200 1"}, Deadline(milliseconds(300)));
  CHECK(scores[0].why == Missing::timeout);
  CHECK(scores[1].value == 1.0);
  CHECK(rewards.pending() == 0);
}

TEST_CASE("the check ends the wait by throwing") {
  Service service;
  Rewards rewards(service.options());
  rewards.submit(items({"hold"}), [](std::vector<Score>) {});
  int calls = 0;
  const auto stop = [&] {
    if (++calls == 3) throw Error(ErrorKind::interrupted, "interrupted by the user");
  };
  CHECK_THROWS_AS(rewards.finish(Deadline(seconds(60)), stop), Error);
}
