// Log-probs of given sequences, asked of one engine over real HTTP.
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "fleet/fleet.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::fleet;

namespace {

// Answers when `expected` requests are there, so an answer proves that so many were in flight at once.
class StandInEngine {
 public:
  explicit StandInEngine(size_t expected) : expected_(expected), server_({}) {
    server_.route("POST", "/v1/completions", [this](const http::ServerRequest& request, http::Responder responder) {
      const std::lock_guard lock(mutex_);
      waiting_.emplace_back(parse_json(request.body, "request"), std::move(responder));
      if (waiting_.size() < expected_) return;
      for (auto& [body, waiter] : std::exchange(waiting_, {})) waiter.respond(reply(body));
    });
    server_.start();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

 private:
  // Token t has log-prob -t at every place; token 13 is refused.
  static http::Response reply(const Json& body) {
    CHECK(body.at("prompt_logprobs") == 0);
    CHECK(body.at("max_tokens") == 1);
    CHECK(body.at("model") == "m");
    Json list = Json::array({nullptr});
    for (size_t i = 1; i < body.at("prompt").size(); ++i) {
      const int64_t token = body.at("prompt")[i].get<int64_t>();
      if (token == 13) return http::error_response(400, "no luck with 13");
      list.push_back({{std::to_string(token), {{"logprob", -token}, {"rank", 1}, {"decoded_token", nullptr}}}});
    }
    const Json choice = {{"index", 0}, {"prompt_logprobs", list}};
    return {200, Json({{"choices", Json::array({choice})}}).dump(), "application/json"};
  }

  size_t expected_;
  std::mutex mutex_;
  std::vector<std::pair<Json, http::Responder>> waiting_;
  http::Server server_;
};

struct Bench {
  explicit Bench(size_t expected)
      : second(expected),
        fleet(client, supervisor, {{0, first.url(), "", "", "m"}, {1, second.url(), "", "", "m"}},
              {milliseconds(20000), milliseconds(20000)}) {}

  StandInEngine first{1};
  StandInEngine second;
  http::Client client;
  Supervisor supervisor{std::string(VIME_BIN_DIR) + "/proc_test_child", "f" + random_token(), {}};
  Fleet fleet;
};

}  // namespace

TEST_CASE("one engine scores all sequences, all in flight at once, results in their order") {
  Bench bench(40);
  std::vector<std::vector<int64_t>> sequences;
  std::vector<std::vector<double>> expected;
  for (int64_t i = 0; i < 40; ++i) {
    sequences.push_back({i, i + 100, 2 * i + 50});
    expected.push_back({static_cast<double>(-i - 100), static_cast<double>(-2 * i - 50)});
  }
  sequences[7] = {5};
  expected[7] = {};
  CHECK(bench.fleet.prompt_logprobs(1, sequences) == expected);
  CHECK(bench.fleet.prompt_logprobs(1, {}).empty());
}

TEST_CASE("a sequence that an engine refuses is an error that names both") {
  Bench bench(2);
  try {
    bench.fleet.prompt_logprobs(1, {{1, 2}, {1, 13}});
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::process_failed);
    CHECK(error.message() == "log-probs of sequence 1 on engine 1: HTTP 400: no luck with 13");
  }
}

TEST_CASE("a job that another engine takes over goes to that engine, and its result says so") {
  // Two engines, one request at a time each; the first answers nothing until the second has taken over what it could.
  struct Engine {
    http::Server server{{}};
    std::mutex mutex;
    std::vector<int64_t> seeds;
    std::vector<http::Responder> held;
    bool holds = false;
    Engine() {
      server.route("POST", "/v1/completions", [this](const http::ServerRequest& request, http::Responder responder) {
        const std::lock_guard lock(mutex);
        seeds.push_back(parse_json(request.body, "request").at("seed").get<int64_t>());
        if (holds) return held.push_back(std::move(responder));
        responder.respond(answer());
      });
      server.start();
    }
    static http::Response answer() {
      return {
          200,
          R"({"choices": [{"index": 0, "token_ids": [4], "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.5]},
                       "weight_versions": [{"version": "1", "start": 0, "end": 1}]}]})"};
    }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(server.port()); }
  };
  Engine slow, fast;
  slow.holds = true;
  http::Client client;
  Supervisor supervisor{std::string(VIME_BIN_DIR) + "/proc_test_child", "f" + random_token(), {}};
  Fleet fleet(client, supervisor, {{0, slow.url(), "", "", "m"}, {1, fast.url(), "", "", "m"}},
              {milliseconds(20000), milliseconds(20000), 1});
  std::vector<GenerateJob> jobs(8);
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].name = "sample " + std::to_string(i);
    jobs[i].prompt = {1};
    jobs[i].seed = static_cast<int64_t>(i);
    jobs[i].session = static_cast<int64_t>(i);
  }
  size_t done = 0;
  const std::vector<Generation> results = fleet.generate(jobs, [&](size_t, const Generation&) {
    if (++done < 7) return;
    const std::lock_guard lock(slow.mutex);
    slow.holds = false;  // its request may come later than all this
    for (http::Responder& responder : std::exchange(slow.held, {})) responder.respond(Engine::answer());
  });
  CHECK(slow.seeds.size() == 1);
  CHECK(fast.seeds.size() == 7);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const bool by_slow = slow.seeds[0] == static_cast<int64_t>(i);
    CHECK(results[i].engine == (by_slow ? "engine 0" : "engine 1"));
  }
}

TEST_CASE("a prompt with a token that the model does not have is sent to nobody") {
  http::Client client;
  Supervisor supervisor{std::string(VIME_BIN_DIR) + "/proc_test_child", "f" + random_token(), {}};
  Fleet fleet(client, supervisor, {{0, "http://127.0.0.1:9", "", "", "m"}},
              {milliseconds(1000), milliseconds(1000), 1, 100});
  GenerateJob job;
  job.name = "sample 3";
  job.prompt = {5, 100};
  try {
    fleet.generate({job}, [](size_t, const Generation&) {});
    FAIL("sent");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.message() == "sample 3: its prompt has token 100, but the model's vocabulary has 100");
  }
}
