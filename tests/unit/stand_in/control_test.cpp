// Routes by release, pauses, sleep.
#include <chrono>

#include "served.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

Json long_request(int tokens = 400) {
  return {{"model", "m"}, {"prompt", {5, 6, 7}}, {"max_tokens", tokens},     {"temperature", 1.0},
          {"seed", 1},    {"ignore_eos", true},  {"return_token_ids", true}, {"logprobs", 0}};
}

// A request of 400 tokens takes two seconds at least.
ServeOptions slow(const std::vector<std::string>& arguments = {}) {
  return {.arguments = arguments, .env = {"VIME_STAND_IN_STEP_MS=5"}};
}

Json choice_of(std::future<http::Outcome> future) {
  const http::Reply reply = Served::reply(std::move(future));
  REQUIRE_MESSAGE(reply.status == 200, reply.body);
  return parse_json(reply.body)["choices"][0];
}

bool is_paused(Served& served) {
  return parse_json(served.get("/is_paused").body)["is_paused"].get<bool>();
}

}  // namespace

TEST_CASE("each release has its routes") {
  struct Expected {
    const char* version;
    const char* claimed;
    bool versions;
  };
  for (const auto& [version, claimed, versions] : {Expected{"G2a", "0.21.0", false},
                                                   {"G2b", "0.24.0", false},
                                                   {"G2c", "0.25.1", false},
                                                   {"G3", "0.32.0", true},
                                                   {"0.99.0.dev1", "0.99.0.dev1", true}}) {
    CAPTURE(version);
    Served served({.version = version});
    CHECK(parse_json(served.get("/version").body)["version"] == claimed);
    CHECK(served.get("/weight_info").status == (versions ? 200 : 404));
    CHECK(served.post("/abort_requests", "{}").status == (versions ? 200 : 404));
    CHECK(served.post("/start_draft_weight_update").status == (versions ? 500 : 404));
    CHECK(served.get("/health").status == 200);
    CHECK(served.get("/ping").status == 200);
    CHECK(parse_json(served.get("/get_world_size").body)["world_size"] == 1);
    CHECK(parse_json(served.get("/v1/models").body)["data"][0]["id"] == "m");
    CHECK(served.get("/no_such_route").body == R"({"detail":"Not Found"})");
    CHECK(served.get("/pause").status == 405);
    const http::Reply generated =
        served.post("/inference/v1/generate", R"({"token_ids":[1],"sampling_params":{"max_tokens":1}})");
    CHECK(generated.status == (versions ? 403 : 200));
  }
}

TEST_CASE("without development mode there are no RL routes, and a key guards the others") {
  Served served({.arguments = {"--api-key", "secret"}, .dev_mode = false});
  for (const char* path : {"/pause", "/resume", "/update_weights", "/collective_rpc", "/sleep", "/reset_prefix_cache"})
    CHECK(served.post(path, "{}").status == 404);
  CHECK(served.get("/get_world_size").status == 404);
  CHECK(served.get("/health").status == 200);
  CHECK(served.get("/v1/models").status == 401);
  CHECK(Served::reply(served.send("GET", "/v1/models", "", {{"Authorization", "Bearer secret"}})).status == 200);
}

TEST_CASE("a pause of mode abort answers what runs and what waits with what there is") {
  Served served(slow({"--max-num-seqs", "1"}));
  auto running = served.send("POST", "/v1/completions", long_request().dump());
  served.wait_for_load(1);
  auto waiting = served.send("POST", "/v1/completions", long_request().dump());
  served.wait_for_load(2);
  CHECK(served.post("/pause?mode=abort").body == R"({"status":"paused"})");
  const Json partial = choice_of(std::move(running));
  CHECK(partial["finish_reason"] == "abort");
  CHECK(partial["token_ids"].size() < 400);
  CHECK(partial["token_ids"].size() == partial["logprobs"]["token_logprobs"].size());
  const Json none = choice_of(std::move(waiting));
  CHECK(none["finish_reason"] == "abort");
  CHECK(none["token_ids"].empty());
  CHECK(is_paused(served));
  CHECK(parse_json(served.get("/is_sleeping").body)["is_sleeping"] == true);
}

TEST_CASE("requests that come while paused run after resume") {
  Served served;
  served.post("/pause");
  auto queued = served.send("POST", "/v1/completions", long_request(5).dump());
  served.wait_for_load(1);
  CHECK(queued.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  CHECK(served.post("/resume").body == R"({"status":"resumed"})");
  CHECK(choice_of(std::move(queued))["finish_reason"] == "length");
  CHECK(!is_paused(served));
}

TEST_CASE("a pause of mode wait lets requests end, one of mode keep stops them in the middle") {
  for (const char* mode : {"wait", "keep"}) {
    CAPTURE(mode);
    Served served(slow());
    auto running = served.send("POST", "/v1/completions", long_request().dump());
    served.wait_for_load(1);
    CHECK(served.post(std::string("/pause?clear_cache=false&mode=") + mode).status == 200);
    const bool ended = std::string(mode) == "wait";
    CHECK((running.wait_for(ended ? std::chrono::milliseconds(20000) : std::chrono::milliseconds(100)) ==
           std::future_status::ready) == ended);
    served.post("/resume");
    const Json choice = choice_of(std::move(running));
    CHECK(choice["finish_reason"] == "length");
    CHECK(choice["token_ids"].size() == 400);
  }
}

TEST_CASE("queries and bodies that vLLM would ignore are refused") {
  Served served({.arguments = {"--enable-sleep-mode"}});
  CHECK(served.post("/pause?mode=gently").status == 400);
  CHECK(served.post("/pause?clear_cache=perhaps").status == 400);
  CHECK(served.post("/pause?clear=true").status == 400);
  CHECK(served.post("/pause", R"({"mode":"abort"})").status == 400);
  CHECK(served.post("/sleep", R"({"level":2})").status == 400);
  CHECK(served.post("/wake_up?tags=weight").status == 400);
  CHECK(!is_paused(served));
}

TEST_CASE("sleep keeps weights at level 1 and loses them at level 2, and parts wake one by one") {
  Served served({.arguments = {"--enable-sleep-mode"}});
  const auto before = served.prompt_logprobs(kPrompt);
  CHECK(served.post("/sleep?level=1").status == 200);
  auto queued = served.send("POST", "/v1/completions", long_request(3).dump());
  served.wait_for_load(1);
  CHECK(served.post("/wake_up?tags=weights").status == 200);
  CHECK(parse_json(served.get("/is_sleeping").body)["is_sleeping"] == true);
  CHECK(served.post("/wake_up?tags=kv_cache").status == 200);
  CHECK(parse_json(served.get("/is_sleeping").body)["is_sleeping"] == false);
  CHECK(choice_of(std::move(queued))["finish_reason"] == "length");
  CHECK(served.prompt_logprobs(kPrompt) == before);
  served.post("/sleep?level=2");
  served.post("/wake_up");
  CHECK(served.prompt_logprobs(kPrompt) != before);
}

TEST_CASE("sleep needs its flag") {
  Served served;
  CHECK(served.post("/sleep").status == 500);
  CHECK(served.get("/health").status == 200);
}

TEST_CASE("requests are aborted by id, all of them, and by a client that goes") {
  Served served(slow());
  auto named = served.send("POST", "/v1/completions", long_request().dump(), {{"X-Request-Id", "abc"}});
  served.wait_for_load(1);
  auto other = served.send("POST", "/v1/completions", long_request().dump());
  served.wait_for_load(2);
  CHECK(parse_json(served.post("/abort_requests", R"({"request_ids":["nobody"]})").body)["aborted"] == 0);
  CHECK(parse_json(served.post("/abort_requests", R"({"request_ids":["cmpl-abc"]})").body)["aborted"] == 1);
  const http::Reply reply = Served::reply(std::move(named));
  CHECK(parse_json(reply.body)["id"] == "cmpl-abc");
  CHECK(parse_json(reply.body)["choices"][0]["finish_reason"] == "abort");
  CHECK(parse_json(served.post("/abort_requests", "{}").body)["aborted"] == 1);
  CHECK(choice_of(std::move(other))["finish_reason"] == "abort");

  served.post("/pause");
  {
    http::Client leaving;
    http::Request request;
    request.method = "POST";
    request.url = "http://127.0.0.1:" + std::to_string(served.port()) + "/v1/completions";
    request.body = long_request().dump();
    auto gone = leaving.send(std::move(request));
    served.wait_for_load(1);
  }
  served.wait_for_load(0);
}
