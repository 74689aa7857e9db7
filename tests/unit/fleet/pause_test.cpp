// When a fleet takes its engines for paused: an answer to /pause that lingers is not waited for where it need not be.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "fleet/fleet.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::fleet;

namespace {

// Pauses when it is told to, and answers when the test lets it, or after a while.
class StandInEngine {
 public:
  StandInEngine() : server_({}) {
    server_.route("POST", "/pause", [this](const http::ServerRequest&, http::Responder responder) {
      const std::lock_guard lock(mutex_);
      told_.push_back("pause");
      pause_ = std::move(responder);
      came_.notify_all();
      if (!answers_by_itself) return;
      answering_ = std::jthread([this] {
        std::this_thread::sleep_for(milliseconds(50));
        answer(200);
      });
    });
    server_.route("GET", "/is_paused", [this](const http::ServerRequest&, http::Responder responder) {
      const std::lock_guard lock(mutex_);
      const bool paused = pause_ && ++asked > not_yet;  // a question may come before /pause
      if (pause_ && !knows_pausing) return responder.respond(http::error_response(404, "Not Found"));
      responder.respond({200, Json({{"is_paused", paused}}).dump()});
    });
    for (const std::string route : {"sleep", "wake_up", "resume"}) {
      server_.route("POST", "/" + route, [this, route](const http::ServerRequest&, http::Responder responder) {
        note(route);
        responder.respond({200, "{}"});
      });
    }
    server_.start();
  }

  // When it has been told to pause, which a question to another engine can overtake.
  void answer(int status) {
    std::unique_lock lock(mutex_);
    REQUIRE(came_.wait_for(lock, std::chrono::seconds(20), [&] { return pause_.has_value(); }));
    told_.push_back("answered");
    pause_.value().respond(status == 200 ? http::Response{200, "{}"} : http::error_response(status, "cannot pause"));
    pause_.reset();
  }
  std::string told() {
    const std::lock_guard lock(mutex_);
    return join(told_, " ");
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

  std::atomic<bool> answers_by_itself = false;
  std::atomic<bool> knows_pausing = true;
  std::atomic<int> asked = 0;    // whether it has paused, since it was told to
  std::atomic<int> not_yet = 0;  // of them, how many it denies

 private:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    told_.push_back(what);
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable came_;
  std::vector<std::string> told_;
  std::optional<http::Responder> pause_;
  std::jthread answering_;
  http::Server server_;
};

struct Bench {
  explicit Bench(const std::string& protocol, bool shared = false)
      : fleet(client, supervisor, {{0, first.url(), "", protocol, "m"}, {1, second.url(), "", protocol, "m"}},
              {milliseconds(20000), milliseconds(20000), 512, 0, shared}) {}

  void answer(int status = 200) {
    first.answer(200);
    second.answer(status);
  }

  StandInEngine first, second;
  http::Client client;
  Supervisor supervisor{std::string(VIME_BIN_DIR) + "/proc_test_child", "f" + random_token(), {}};
  Fleet fleet;
};

constexpr const char* kVllm = "vllm 0.25.1";

}  // namespace

TEST_CASE("a vLLM server that has paused is not waited for until it answers, but nothing overtakes its answer") {
  Bench bench(kVllm);
  bench.second.not_yet = 2;
  bench.fleet.pause_all();  // nobody has answered
  CHECK(bench.first.told() == "pause");
  CHECK(bench.first.asked == 1);
  CHECK(bench.second.asked == 3);
  std::thread resuming([&] { bench.fleet.resume_all(); });
  std::this_thread::sleep_for(milliseconds(20));
  bench.answer();
  resuming.join();
  CHECK(bench.first.told() == "pause answered resume");
  CHECK(bench.second.told() == "pause answered resume");
}

TEST_CASE("a refusal to pause is told when it comes") {
  Bench early(kVllm), late(kVllm);
  early.second.not_yet = 1000000;
  std::thread answering([&] {
    while (early.second.asked == 0) std::this_thread::yield();
    early.answer(500);
  });
  CHECK_THROWS_WITH_AS(early.fleet.pause_all(), doctest::Contains("engine 1: /pause: HTTP 500: cannot pause"), Error);
  answering.join();

  late.fleet.pause_all();
  late.answer(500);
  CHECK_THROWS_WITH_AS(late.fleet.resume_all(), doctest::Contains("engine 1: /pause: HTTP 500: cannot pause"), Error);
  CHECK(late.second.told() == "pause answered");
}

TEST_CASE(
    "the answer is waited for when others use the engines, while engines sleep, and of engines that do not linger") {
  Bench shared(kVllm, true), asleep(kVllm), own("");
  for (Bench* bench : {&shared, &asleep, &own}) {
    bench->first.answers_by_itself = bench->second.answers_by_itself = true;
  }
  asleep.fleet.sleep_all(2);
  asleep.fleet.wake_all({kWeights});
  for (Bench* bench : {&shared, &asleep, &own}) {
    bench->fleet.pause_all();
    CHECK(bench->first.asked == 0);
    CHECK(bench->second.asked == 0);
  }
  asleep.fleet.wake_all({kKvCache});
  asleep.first.answers_by_itself = asleep.second.answers_by_itself = false;
  asleep.fleet.pause_all();
  CHECK(asleep.second.asked == 1);
  asleep.answer();
}

TEST_CASE("after an engine that cannot say whether it has paused, nobody waits for the others' answers") {
  Bench bench(kVllm);
  bench.second.knows_pausing = false;
  CHECK_THROWS_WITH_AS(bench.fleet.pause_all(), doctest::Contains("engine 1: /is_paused: HTTP 404"), Error);
  while (bench.first.told().empty()) std::this_thread::yield();  // its /pause may still be on its way
  bench.fleet.sleep_all(2);
  CHECK(bench.first.told() == "pause sleep");
  bench.answer();
}
