// Requests in flight: many at once, paused, aborted, abandoned, and an executor that fails under them.
#include <doctest/doctest.h>

#include <atomic>

#include "bench.hpp"

using namespace vime;
using namespace vime::engine;

namespace {

constexpr int64_t kLong = 1 << 20;

Json request_of(int index, int64_t max_tokens) {
  return {
      {"prompt", {index % 50, index / 50}}, {"max_tokens", max_tokens}, {"seed", index}, {"return_token_ids", true}};
}

// Sends `body` to an engine whose steps are held and waits until the engine is in a step with it. From then on the
// steps go one by one, between looks at what is waited for, so that a request never ends before its time.
std::future<http::Outcome> begin(Bench& bench, const Json& body) {
  bench.fake.hold();
  auto future = bench.complete(body);
  REQUIRE(bench.fake.wait_for_steps(1));
  return future;
}

template <typename Condition>
void step_until(Bench& bench, Condition reached) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!reached()) {
    REQUIRE(std::chrono::steady_clock::now() < give_up);
    bench.fake.allow_step();
    REQUIRE(bench.get("/ping").status == 200);
  }
}

void wait_for_load(Bench& bench, int count) {
  step_until(bench, [&] { return bench.get_json("/load")["server_load"] == count; });
}

Json post_while_stepping(Bench& bench, const std::string& target, const std::string& body = "") {
  auto future = bench.send("POST", target, body);
  step_until(bench, [&] { return Bench::answered(future); });
  return Bench::json(std::move(future));
}

}  // namespace

TEST_CASE("256 requests in flight are all served with what each would get alone") {
  Bench bench;
  std::vector<std::future<http::Outcome>> futures;
  bench.fake.hold();
  for (int i = 0; i < 256; ++i) futures.push_back(bench.complete(request_of(i, 6)));
  REQUIRE(bench.fake.wait_for_steps(1));
  bench.fake.release();
  for (int i = 0; i < 256; ++i) {
    const Json reply = Bench::json(std::move(futures[static_cast<std::size_t>(i)]));
    CHECK(reply["choices"][0]["token_ids"].get<std::vector<int32_t>>() ==
          bench.fake.expected({i % 50, i / 50}, static_cast<uint64_t>(i), 6));
  }
}

TEST_CASE("pause with abort ends running and waiting requests at once with their partial tokens") {
  Bench bench;
  bench.fake.model_len = kLong;
  bench.fake.slots = 1;
  auto running = begin(bench, request_of(1, kLong / 2));
  auto waiting = bench.complete(request_of(2, 5));
  wait_for_load(bench, 2);
  step_until(bench, [&] { return bench.fake.steps() >= 10; });
  CHECK(post_while_stepping(bench, "/pause?mode=abort")["status"] == "paused");
  const Json first = Bench::json(std::move(running));
  CHECK(first["choices"][0]["finish_reason"] == "abort");
  const auto ids = first["choices"][0]["token_ids"].get<std::vector<int32_t>>();
  CHECK(ids.size() >= 9);
  CHECK(ids == bench.fake.expected({1, 0}, 1, static_cast<int64_t>(ids.size())));
  const Json second = Bench::json(std::move(waiting));
  CHECK(second["choices"][0]["finish_reason"] == "abort");

  // A request that comes while paused waits for resume.
  auto later = bench.complete(request_of(3, 4));
  CHECK(bench.get_json("/is_paused")["is_paused"] == true);
  wait_for_load(bench, 1);
  CHECK_FALSE(Bench::answered(later));
  bench.fake.release();
  bench.post_json("/resume");
  CHECK(Bench::json(std::move(later))["choices"][0]["token_ids"].get<std::vector<int32_t>>() ==
        bench.fake.expected({3, 0}, 3, 4));
}

TEST_CASE("pause with wait is answered when the running request has finished") {
  Bench bench;
  bench.fake.model_len = kLong;
  bench.fake.slots = 1;
  auto running = begin(bench, request_of(1, 500));
  auto queued = bench.complete(request_of(2, 5));
  auto pause = bench.send("POST", "/pause?mode=wait");
  CHECK_FALSE(Bench::answered(pause));
  bench.fake.release();
  CHECK(Bench::json(std::move(pause))["status"] == "paused");
  const Json first = Bench::json(std::move(running));
  CHECK(first["choices"][0]["finish_reason"] == "length");
  CHECK(first["choices"][0]["token_ids"].size() == 500);
  CHECK(bench.get_json("/is_paused")["is_paused"] == true);
  // That the queued one stays queued is pinned without HTTP's timing in the core's tests.
  bench.post_json("/resume");
  CHECK(Bench::json(std::move(queued))["choices"][0]["token_ids"].size() == 5);
}

TEST_CASE("pause with keep stops stepping; after an update and resume the request goes on under the new version") {
  for (const char* clear : {"true", "false"}) {
    CAPTURE(clear);
    Bench bench;
    bench.fake.model_len = kLong;
    bench.post_json("/init_weight_transfer_engine", R"({"init_info":{}})");
    bench.push("1");
    auto running = begin(bench, request_of(1, 20000));
    post_while_stepping(bench, std::string("/pause?mode=keep&clear_cache=") + clear);
    bench.fake.release();
    const int steps = bench.fake.steps();
    CHECK_FALSE(Bench::answered(running));
    bench.push("2");
    CHECK(bench.fake.steps() == steps);
    bench.post_json("/resume");
    const Json choice = Bench::json(std::move(running))["choices"][0];
    CHECK(choice["finish_reason"] == "length");
    CHECK(choice["token_ids"].get<std::vector<int32_t>>() == bench.fake.expected({1, 0}, 1, 20000));
    REQUIRE(choice["weight_versions"].size() == 2);
    CHECK(choice["weight_versions"][0]["version"] == "1");
    CHECK(choice["weight_versions"][0]["start"] == 0);
    CHECK(choice["weight_versions"][0]["end"] == choice["weight_versions"][1]["start"]);
    CHECK(choice["weight_versions"][1]["version"] == "2");
    CHECK(choice["weight_versions"][1]["end"] == 20000);
  }
}

TEST_CASE("abort_requests ends the named request only, and all without names") {
  Bench bench;
  bench.fake.model_len = kLong;
  Json named = request_of(1, kLong / 2);
  named["request_id"] = "one";
  auto first = begin(bench, named);
  auto second = bench.complete(request_of(2, kLong / 2));
  wait_for_load(bench, 2);
  const Json reply = post_while_stepping(bench, "/abort_requests", R"({"request_ids":["cmpl-one-0","cmpl-none-0"]})");
  CHECK(reply == parse_json(R"({"status":"aborted","aborted":1})"));
  CHECK(Bench::json(std::move(first))["choices"][0]["finish_reason"] == "abort");
  wait_for_load(bench, 1);
  CHECK_FALSE(Bench::answered(second));
  CHECK(post_while_stepping(bench, "/abort_requests", "{}")["aborted"] == 1);
  CHECK(Bench::json(std::move(second))["choices"][0]["finish_reason"] == "abort");
  CHECK(bench.post("/abort_requests", R"({"request_ids":"x"})").status == 400);
}

TEST_CASE("a client that goes away ends its request") {
  Bench bench;
  bench.fake.model_len = kLong;
  bench.fake.hold();
  bench.serve();
  {
    http::Client gone;
    http::Request request;
    request.method = "POST";
    request.url = "http://127.0.0.1:" + std::to_string(bench.server->port()) + "/v1/completions";
    request.body = request_of(1, kLong / 2).dump();
    auto future = gone.send(std::move(request));
    REQUIRE(bench.fake.wait_for_steps(1));
    CHECK(bench.get_json("/load")["server_load"] == 1);
  }
  wait_for_load(bench, 0);
  CHECK(bench.get("/metrics").body.find("finished_reason=\"abort\",model_name=\"/models/m\"} 1") != std::string::npos);
}

TEST_CASE("an executor that throws in a step ends everything in flight with 500 and health with 503") {
  Bench bench;
  std::atomic<int> failures = 0;
  bench.options.on_failure = [&](const std::string& reason) {
    CHECK(reason.find("worker 1 was killed by signal 9") != std::string::npos);
    ++failures;
  };
  bench.fake.fail_at_step = 3;
  bench.fake.hold();
  std::vector<std::future<http::Outcome>> futures;
  for (int i = 0; i < 12; ++i) futures.push_back(bench.complete(request_of(i, 40)));
  REQUIRE(bench.fake.wait_for_steps(1));
  bench.fake.release();
  for (auto& future : futures) {
    const http::Reply reply = Bench::reply(std::move(future));
    CHECK(reply.status == 500);
    CHECK(Bench::message(reply).find("worker 1 was killed by signal 9") != std::string::npos);
  }
  CHECK(bench.post("/v1/completions", R"({"prompt":[3]})").status == 500);
  CHECK(bench.get("/health").status == 503);
  CHECK(bench.post("/pause").status == 500);
  CHECK(failures == 1);
}

TEST_CASE("stopping the server answers what is in flight and frees the port") {
  Bench bench;
  bench.fake.model_len = kLong;
  auto running = begin(bench, request_of(1, kLong / 2));
  const uint16_t port = bench.server->port();
  bench.fake.release();
  bench.server->stop();
  const http::Outcome outcome = running.get();
  // The answer may be lost with the connection, but the client never waits.
  if (outcome.answered) CHECK(outcome.reply.status == 500);
  bench.server.reset();
  bench.options.port = port;
  bench.serve();
  CHECK(bench.get("/health").status == 200);
}
