// Every route over real HTTP.
#include <doctest/doctest.h>

#include "base/deadline.hpp"

#include "bench.hpp"

using namespace vime;
using namespace vime::engine;

namespace {

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("health, ping, version, models, load and metrics tell what they should") {
  Bench bench;
  CHECK(bench.get("/health").status == 200);
  CHECK(bench.get("/health").body.empty());
  CHECK(bench.get("/ping").status == 200);
  CHECK(bench.get_json("/version")["version"] == kEngineVersion);
  const Json models = bench.get_json("/v1/models");
  CHECK(models["data"][0]["id"] == "/models/m");
  CHECK(models["data"][0]["max_model_len"] == 64);
  CHECK(bench.get_json("/load")["server_load"] == 0);
  Bench::json(bench.complete({{"prompt", {1, 2, 3}}, {"max_tokens", 4}}));
  // The engine publishes its counters after the pass that answered, so a moment later at most.
  http::Reply metrics = bench.get("/metrics");
  const Deadline deadline(milliseconds(5000));
  while (!holds(metrics.body, "vllm:generation_tokens_total{model_name=\"/models/m\"} 4\n") && !deadline.passed()) {
    metrics = bench.get("/metrics");
  }
  CHECK(holds(metrics.body, "vllm:prompt_tokens_total{model_name=\"/models/m\"} 3\n"));
  CHECK(holds(metrics.body, "vllm:generation_tokens_total{model_name=\"/models/m\"} 4\n"));
  CHECK(holds(metrics.body, "vllm:request_success_total{finished_reason=\"length\",model_name=\"/models/m\"} 1\n"));
  CHECK(bench.get("/nothing").status == 404);
  CHECK(bench.get("/pause").status == 405);
}

TEST_CASE("a completion carries ids, log-probs, finish reason, usage and weight versions") {
  Bench bench;
  const Json reply = Bench::json(bench.complete({{"model", "/models/m"},
                                                 {"prompt", {{5, 6}, {7}}},
                                                 {"max_tokens", 3},
                                                 {"seed", 11},
                                                 {"n", 2},
                                                 {"logprobs", 0},
                                                 {"return_token_ids", true},
                                                 {"return_tokens_as_token_ids", true},
                                                 {"request_id", "abc"}}));
  CHECK(reply["id"] == "cmpl-abc");
  CHECK(reply["object"] == "text_completion");
  REQUIRE(reply["choices"].size() == 4);
  for (int index = 0; index < 4; ++index) {
    const Json& choice = reply["choices"][static_cast<std::size_t>(index)];
    const std::vector<int32_t> prompt = index < 2 ? std::vector<int32_t>{5, 6} : std::vector<int32_t>{7};
    const auto expected = bench.fake.expected(prompt, 11 + static_cast<uint64_t>(index % 2), 3);
    CHECK(choice["index"] == index);
    CHECK(choice["token_ids"].get<std::vector<int32_t>>() == expected);
    CHECK(choice["prompt_token_ids"].get<std::vector<int32_t>>() == prompt);
    CHECK(choice["finish_reason"] == "length");
    CHECK(choice["stop_reason"].is_null());
    CHECK(choice["logprobs"]["tokens"][0] == "token_id:" + std::to_string(expected[0]));
    CHECK(choice["logprobs"]["token_logprobs"][2].get<float>() == FakeExecutor::logprob_of(expected[2]));
    CHECK(choice["weight_versions"] == parse_json(R"([{"version":"default","start":0,"end":3}])"));
    CHECK(choice["text"] == number_codec().decode(expected, true));
  }
  CHECK(reply["usage"] == parse_json(R"({"prompt_tokens":3,"completion_tokens":12,"total_tokens":15})"));
}

TEST_CASE("generate takes and gives token ids") {
  Bench bench;
  const std::string body = R"({"token_ids":[5,6],"sampling_params":{"max_tokens":3,"seed":11,"logprobs":0}})";
  const Json reply = Bench::json(bench.send("POST", "/inference/v1/generate", body, {{"X-Request-Id", "me"}}));
  const auto expected = bench.fake.expected({5, 6}, 11, 3);
  CHECK(reply["request_id"] == "generate-tokens-me");
  REQUIRE(reply["choices"].size() == 1);
  CHECK(reply["choices"][0]["token_ids"].get<std::vector<int32_t>>() == expected);
  const Json& first = reply["choices"][0]["logprobs"]["content"][0];
  CHECK(first["token"] == "token_id:" + std::to_string(expected[0]));
  CHECK(first["logprob"].get<float>() == FakeExecutor::logprob_of(expected[0]));
  CHECK(reply["choices"][0]["weight_versions"][0]["end"] == 3);
}

TEST_CASE("prompt log-probs come in vLLM's form: null first, then entries by token id") {
  Bench bench;
  const std::vector<std::vector<int32_t>> prompts = {{5, 6, 7, 8, 9}, {4}};
  const auto entry = [](float logprob, int32_t rank, const Json& text) -> Json {
    return {{"logprob", static_cast<double>(logprob)}, {"rank", rank}, {"decoded_token", text}};
  };
  const auto expected = [&](const std::vector<int32_t>& prompt, bool with_top, bool with_text) {
    const auto text = [&](int32_t id) { return with_text ? Json(std::to_string(id)) : Json(nullptr); };
    Json list = Json::array({nullptr});
    for (const PromptLogprob& found : bench.fake.expected_prompt_logprobs(prompt)) {
      const int32_t id = prompt[list.size()];
      Json tokens = {{std::to_string(id), entry(found.logprob, found.rank, text(id))}};
      if (with_top && found.top_token != id)
        tokens[std::to_string(found.top_token)] = entry(found.top_logprob, 1, text(found.top_token));
      list.push_back(tokens);
    }
    return list;
  };
  Json body = {{"prompt", prompts}, {"max_tokens", 1}, {"n", 2}, {"seed", 1}};
  const Json without = Bench::json(bench.complete(body));
  for (const Json& choice : without["choices"]) CHECK(choice["prompt_logprobs"].is_null());
  for (const int value : {0, 1}) {
    body["prompt_logprobs"] = value;
    const Json choices = Bench::json(bench.complete(body))["choices"];
    REQUIRE(choices.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(choices[i]["prompt_logprobs"] == expected(prompts[i / 2], value == 1, true));
    const Json params = {{"max_tokens", 1}, {"prompt_logprobs", value}};
    const Json generate = {{"token_ids", prompts[0]}, {"sampling_params", params}};
    const Json reply = bench.post_json("/inference/v1/generate", generate.dump());
    CHECK(reply["prompt_logprobs"] == expected(prompts[0], value == 1, false));
  }
  const Json plain =
      bench.post_json("/inference/v1/generate", R"({"token_ids":[5,6],"sampling_params":{"max_tokens":1}})");
  CHECK(plain["prompt_logprobs"].is_null());
  // The form itself, once in full.
  const Json full = Bench::json(bench.complete({{"prompt", {5, 6}}, {"max_tokens", 1}, {"prompt_logprobs", 0}}));
  const Json& entries = full["choices"][0]["prompt_logprobs"];
  const std::string logprob = Json(static_cast<double>(bench.fake.expected_prompt_logprobs({5, 6})[0].logprob)).dump();
  const std::string rank = std::to_string(bench.fake.expected_prompt_logprobs({5, 6})[0].rank);
  CHECK(entries.dump() == "[null,{\"6\":{\"logprob\":" + logprob + ",\"rank\":" + rank + ",\"decoded_token\":\"6\"}}]");
  const http::Reply refused = bench.post("/v1/completions", R"({"prompt":[5,6],"prompt_logprobs":2})");
  CHECK(refused.status == 400);
  CHECK(holds(Bench::message(refused), "prompt_logprobs"));
}

TEST_CASE("a stop id ends a completion, is in the ids and not in the text") {
  Bench bench;
  const auto expected = bench.fake.expected({9}, 3, 2);
  REQUIRE(expected[0] != expected[1]);
  const Json reply = Bench::json(bench.complete({{"prompt", {9}},
                                                 {"seed", 3},
                                                 {"max_tokens", 9},
                                                 {"stop_token_ids", {expected[1]}},
                                                 {"return_token_ids", true}}));
  CHECK(reply["choices"][0]["token_ids"].get<std::vector<int32_t>>() == expected);
  CHECK(reply["choices"][0]["finish_reason"] == "stop");
  CHECK(reply["choices"][0]["stop_reason"] == expected[1]);
  CHECK(reply["choices"][0]["text"] == std::to_string(expected[0]));
}

TEST_CASE("bad completions are answered 400 with the key named, another model 404, a limit prompt by name") {
  Bench bench;
  const http::Reply unknown = bench.post("/v1/completions", R"({"prompt":[3],"max_token":4})");
  CHECK(unknown.status == 400);
  CHECK(holds(Bench::message(unknown), "max_token"));
  CHECK(parse_json(unknown.body)["error"]["code"] == 400);
  CHECK(bench.post("/v1/completions", "{").status == 400);
  CHECK(bench.post("/v1/completions", R"({"prompt":[3],"model":"other"})").status == 404);
  CHECK(bench.post("/v1/completions", R"({"prompt":[3],"model":5})").status == 400);
  Json body = {{"prompt", std::vector<int>(63, 3)}, {"max_tokens", 1}};
  CHECK(Bench::json(bench.complete(body))["choices"][0]["finish_reason"] == "length");
  body["prompt"].push_back(3);
  CHECK(holds(Bench::message(Bench::reply(bench.complete(body))), "leaves no room"));
  body["prompt"].push_back(3);
  CHECK(holds(Bench::message(Bench::reply(bench.complete(body))), "too long"));
}

TEST_CASE("tokenize and detokenize") {
  Bench bench;
  const Json tokens = bench.post_json("/tokenize", R"({"prompt":"4 5","add_special_tokens":false})");
  CHECK(tokens["tokens"] == parse_json("[4,5]"));
  CHECK(tokens["count"] == 2);
  CHECK(tokens["max_model_len"] == 64);
  CHECK(bench.post_json("/tokenize", R"({"prompt":"4 5","return_token_strs":true})")["token_strs"] ==
        parse_json(R"(["1","4","5"])"));
  CHECK(bench.post_json("/detokenize", R"({"tokens":[4,5]})")["prompt"] == "4 5");
  CHECK(bench.post("/tokenize", R"({"text":"4"})").status == 400);
  CHECK(bench.post("/detokenize", R"({"tokens":"4"})").status == 400);
}

TEST_CASE("a weight update over HTTP: bodies, texts and the version") {
  Bench bench(false);
  CHECK(bench.get_json("/weight_info")["weight_version"] == "default");
  CHECK(bench.get_json("/get_world_size")["world_size"] == 2);
  const http::Reply never = bench.post("/v1/completions", R"({"prompt":[3]})");
  CHECK(never.status == 409);
  CHECK(holds(Bench::message(never), "never pushed"));
  CHECK(bench.post("/init_weight_transfer_engine", "{}").status == 400);
  CHECK(bench.post("/init_weight_transfer_engine", "").status == 400);
  CHECK(bench.post("/init_weight_transfer_engine", R"({"init_info":3})").status == 400);
  CHECK(bench.post_json("/init_weight_transfer_engine", R"({"init_info":{"backend":"shm"}})")["message"] ==
        "Weight transfer initialized");
  CHECK(bench.fake.init_infos.at(0) == parse_json(R"({"backend":"shm"})"));
  const http::Reply early = bench.post("/update_weights", R"({"update_info":{}})");
  CHECK(early.status == 500);
  CHECK(parse_json(early.body)["error"]["type"] == "InternalServerError");
  CHECK(Bench::message(early) == "start_weight_update must be called before update_weights.");
  CHECK(bench.post_json("/start_weight_update")["message"] == "Weight update started");
  CHECK(bench.post_json("/update_weights", R"({"update_info":{"names":["a"]}})")["message"] == "Weights updated");
  CHECK(bench.fake.update_infos.at(0) == parse_json(R"({"names":["a"]})"));
  CHECK(bench.post("/update_weights", R"({"update_info":{},"weight_version":"1"})").status == 400);
  CHECK(bench.post("/finish_weight_update", R"({"weight_version":1})").status == 400);
  CHECK(bench.get_json("/weight_info")["weight_version"] == "default");
  CHECK(bench.post_json("/finish_weight_update", R"({"weight_version":"1"})")["message"] == "Weight update finished");
  CHECK(bench.get_json("/weight_info")["weight_version"] == "1");
  CHECK(bench.get_json("/v1/models")["data"][0]["id"] == "/models/m");
  CHECK(bench.post("/v1/completions", R"({"prompt":[3]})").status == 200);
  CHECK(bench.post_json("/update_weight_version", R"({"new_version":"9"})")["success"] == true);
  CHECK(bench.get_json("/weight_info")["weight_version"] == "9");
  CHECK(bench.post("/update_weight_version", R"({"new_version":9})").status == 400);
  CHECK(bench.post_json("/weight_checker", R"({"action":"checksum"})")["checksums"]["b"] == "0000000000abcdef");
  CHECK(bench.post("/weight_checker", R"({"action":"reset"})").status == 400);
}

TEST_CASE("reload, sleep, wake, prefix cache") {
  Bench bench;
  CHECK(
      bench.post_json("/collective_rpc", R"({"method":"reload_weights","kwargs":{"weights_path":"/w"}})")["results"] ==
      parse_json("[null,null]"));
  CHECK(bench.fake.reloaded == "/w");
  CHECK(bench.post("/collective_rpc", R"({"method":"shutdown"})").status == 400);
  CHECK(bench.post("/collective_rpc", R"({"method":"reload_weights","kwargs":{"path":"/w"}})").status == 400);
  CHECK(bench.post("/reset_prefix_cache").status == 200);
  CHECK(bench.get_json("/is_sleeping")["is_sleeping"] == false);
  CHECK(bench.post("/sleep?level=3").status == 400);
  CHECK(bench.post("/sleep?level=2").status == 200);
  CHECK(bench.get_json("/is_sleeping")["is_sleeping"] == true);
  CHECK(bench.post("/wake_up?tags=everything").status == 400);
  CHECK(bench.post("/wake_up?tags=weights").status == 200);
  CHECK(bench.get_json("/is_sleeping")["is_sleeping"] == true);
  CHECK(bench.post("/wake_up").status == 200);
  CHECK(bench.fake.woken == std::vector<std::pair<bool, bool>>{{true, false}, {false, true}});
  CHECK(bench.get_json("/is_sleeping")["is_sleeping"] == false);
  CHECK(bench.post("/v1/completions", R"({"prompt":[3]})").status == 409);
}

TEST_CASE("pause refuses what it does not know with a flat error") {
  Bench bench;
  CHECK(bench.post("/pause?mode=stop").status == 400);
  CHECK(parse_json(bench.post("/pause?mode=stop").body)["error"].is_string());
  CHECK(bench.post("/pause?mod=keep").status == 400);
  CHECK(bench.post("/pause?clear_cache=perhaps").status == 400);
  CHECK(bench.get_json("/is_paused")["is_paused"] == false);
  CHECK(bench.post_json("/pause")["status"] == "paused");
  CHECK(bench.get_json("/is_paused")["is_paused"] == true);
  CHECK(bench.post_json("/resume")["status"] == "resumed");
  CHECK(bench.get_json("/is_paused")["is_paused"] == false);
}

TEST_CASE("a token guards every route") {
  Bench bench;
  bench.options.token = "secret";
  bench.serve();
  CHECK(bench.get("/health").status == 403);
  CHECK(Bench::reply(bench.send("GET", "/health", "", {{"x-vime-token", "secret"}})).status == 200);
}
