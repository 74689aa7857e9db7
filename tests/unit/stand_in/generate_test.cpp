// Tokens, log-probs and their forms.
#include <cmath>

#include "served.hpp"
#include "tensor/safetensors.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

std::vector<int> reference_ids(const std::string& name) {
  const tensor::SafetensorsFile file(VIME_TEST_DATA "/models/qwen3/reference.safetensors");
  const tensor::TensorView& view = file.find(name);
  std::vector<int> ids;
  const int64_t columns = view.info.shape.back();
  for (int64_t i = 0; i < columns; ++i) {
    ids.push_back(view.info.dtype == tensor::DType::i64
                      ? static_cast<int>(reinterpret_cast<const int64_t*>(view.data)[i])
                      : static_cast<int>(reinterpret_cast<const int32_t*>(view.data)[i]));
  }
  return ids;
}

Json completion(const Json& more = Json::object()) {
  Json body = {{"model", "m"},       {"prompt", kPrompt}, {"max_tokens", 6},
               {"ignore_eos", true}, {"logprobs", 0},     {"return_token_ids", true}};
  body.update(more);
  return body;
}

Json generation(const Json& sampling = Json::object()) {
  Json all = {{"max_tokens", 6}, {"ignore_eos", true}, {"logprobs", 2}, {"temperature", 0}};
  all.update(sampling);
  return {{"model", "m"}, {"token_ids", kPrompt}, {"sampling_params", all}};
}

}  // namespace

TEST_CASE("greedy tokens are those of the reference implementation") {
  Served served;
  const std::vector<int> greedy = reference_ids("greedy");
  CHECK(served.greedy(reference_ids("prompt"), static_cast<int>(greedy.size())) == greedy);
}

TEST_CASE("log-probs are raw or processed as the server was told") {
  const Json body = completion({{"temperature", 2.0}, {"seed", 5}, {"max_tokens", 1}});
  const auto logprob = [&](const char* mode) {
    Served served({.arguments = {"--logprobs-mode", mode}});
    const Json choice = served.post_json("/v1/completions", body)["choices"][0];
    return choice["logprobs"]["token_logprobs"][0].get<double>();
  };
  const double raw = logprob("raw_logprobs");
  const double processed = logprob("processed_logprobs");
  CHECK(raw != processed);
  CHECK(logprob("processed_logits") == doctest::Approx(logprob("raw_logits") / 2));
  CHECK(raw < 0);
  CHECK(processed < 0);
}

TEST_CASE("a completion's log-probs, ids and indices have vLLM's forms") {
  Served served;
  const Json reply = served.post_json("/v1/completions", completion({{"prompt", {{5, 6}, {7, 8}}},
                                                                     {"n", 2},
                                                                     {"seed", 3},
                                                                     {"logprobs", 2},
                                                                     {"return_tokens_as_token_ids", true}}));
  REQUIRE(reply["choices"].size() == 4);
  for (int i = 0; i < 4; ++i) {
    const Json& choice = reply["choices"][static_cast<std::size_t>(i)];
    CHECK(choice["index"] == i);
    CHECK(choice["prompt_token_ids"] == (i < 2 ? Json{5, 6} : Json{7, 8}));
    const Json& logprobs = choice["logprobs"];
    const int id = choice["token_ids"][0];
    CHECK(logprobs["tokens"][0] == "token_id:" + std::to_string(id));
    CHECK(logprobs["top_logprobs"][0].size() >= 2);
    CHECK(logprobs["top_logprobs"][0]["token_id:" + std::to_string(id)].get<double>() ==
          doctest::Approx(logprobs["token_logprobs"][0].get<double>()));
  }
  // Sample i draws with seed + i.
  const Json second = served.post_json("/v1/completions", completion({{"prompt", {5, 6}}, {"seed", 4}}))["choices"][0];
  CHECK(second["token_ids"] == reply["choices"][1]["token_ids"]);
}

TEST_CASE("generate names tokens by text in older releases and by number in the newest") {
  Served older({.version = "G2c"});
  const Json old_reply = older.post_json("/inference/v1/generate", generation());
  const Json old_entry = old_reply["choices"][0]["logprobs"]["content"][0];
  const int id = old_reply["choices"][0]["token_ids"][0];
  CHECK(old_entry["token"] == "token_id:" + std::to_string(id));
  CHECK(!old_entry.contains("token_id"));
  CHECK(!old_reply["choices"][0].contains("weight_versions"));
  CHECK(old_reply["request_id"].get<std::string>().starts_with("generate-tokens-"));
  // Samples are lost there.
  CHECK(older.post_json("/inference/v1/generate", generation({{"n", 2}, {"temperature", 1}}))["choices"].size() == 1);

  Served newest({.arguments = {"--enable-scale-out"}});
  const Json reply = newest.post_json("/inference/v1/generate", generation());
  const Json entry = reply["choices"][0]["logprobs"]["content"][0];
  CHECK(entry["token_id"] == id);
  CHECK(entry["rank"] == 1);
  CHECK(!entry.contains("token"));
  CHECK(entry["logprob"].get<double>() == doctest::Approx(old_entry["logprob"].get<double>()));
  CHECK(reply["choices"][0]["weight_versions"] == parse_json(R"([{"version":"default","start":0,"end":6}])"));
  CHECK(newest.post_json("/inference/v1/generate", generation({{"n", 2}, {"temperature", 1}}))["choices"].size() == 2);
}

TEST_CASE("a stop token ends a sample and stays in it") {
  Served served;
  const std::vector<int> greedy = served.greedy(kPrompt, 6);
  const Json choice = served.post_json("/v1/completions",
                                       completion({{"temperature", 0}, {"stop_token_ids", {greedy[2]}}}))["choices"][0];
  CHECK(choice["finish_reason"] == "stop");
  CHECK(choice["stop_reason"] == greedy[2]);
  CHECK(choice["token_ids"].back() == greedy[2]);
}

TEST_CASE("requests are read strictly") {
  Served served({.arguments = {"--max-num-seqs", "4"}});
  const auto status = [&](const Json& more) { return served.post("/v1/completions", completion(more).dump()).status; };
  CHECK(status(Json::object()) == 200);
  CHECK(status({{"temprature", 0.5}}) == 400);
  CHECK(status({{"temperature", "1"}}) == 400);
  CHECK(status({{"temperature", -1}}) == 400);
  CHECK(status({{"top_p", 0}}) == 400);
  CHECK(status({{"n", 5}}) == 400);
  CHECK(status({{"max_tokens", 0}}) == 400);
  CHECK(status({{"logprobs", 21}}) == 400);
  CHECK(status({{"cache_salt", ""}}) == 400);
  CHECK(status({{"priority", 1}}) == 400);
  CHECK(status({{"prompt", {100000}}}) == 400);
  CHECK(status({{"prompt", Json::array()}}) == 400);
  CHECK(status({{"model", "other"}}) == 404);
  CHECK(status({{"seed", 9223372036854775808ull}}) == 400);
  CHECK(served.post("/v1/completions", "{").status == 400);
  CHECK(Served::reply(served.send("POST", "/v1/completions", completion().dump(), {{"Content-Type", "text/plain"}}))
            .status == 400);
}

TEST_CASE("an older release dies of a token that its model does not have") {
  Served served({.version = "G2c"});
  check_error(served.post("/v1/completions", completion({{"prompt", {100000}}}).dump()), 500, "EngineCore encountered");
  CHECK(served.get("/health").status == 503);
  CHECK(served.wait() == 1);
}

TEST_CASE("what is too long is refused by older releases and cut by the newest") {
  const std::string body = completion({{"max_tokens", 600}, {"temperature", 0}}).dump();
  Served older({.version = "G2c"});
  check_error(older.post("/v1/completions", body), 400, "maximum context length");
  Served newest;
  const http::Reply reply = newest.post("/v1/completions", body);
  REQUIRE(reply.status == 200);
  CHECK(parse_json(reply.body)["choices"][0]["finish_reason"] == "length");
}
