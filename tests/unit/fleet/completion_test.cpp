#include <doctest/doctest.h>

#include "base/error.hpp"
#include "fleet/fleet.hpp"
#include "fleet/launch.hpp"

using namespace vime;
using namespace vime::fleet;

namespace {

Json good_reply() {
  return parse_json(R"({"choices": [{"index": 0, "token_ids": [4, 7], "finish_reason": "length",
    "logprobs": {"token_logprobs": [-0.5, -1.25]}, "weight_versions": [{"version": "3", "start": 0, "end": 2}]}]})");
}

std::string refusal(const Json& reply) {
  try {
    parse_completion(reply.dump(), "sample 5 on engine 1");
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

}  // namespace

TEST_CASE("a completion's tokens, log-probs, reason and versions are read") {
  const Generation generation = parse_completion(good_reply().dump(), "sample 5");
  CHECK(generation.tokens == std::vector<int64_t>{4, 7});
  CHECK(generation.logprobs == std::vector<double>{-0.5, -1.25});
  CHECK(generation.finish_reason == "length");
  CHECK(generation.version_first == 3);
  CHECK(generation.version_last == 3);
}

TEST_CASE("a reply that cannot be trained on names the sample, the engine and what is wrong") {
  Json reply = good_reply();
  reply["choices"][0]["logprobs"]["token_logprobs"][1] = nullptr;
  CHECK(refusal(reply) == "sample 5 on engine 1: log-prob 1 is null, expected a finite number");
  reply = good_reply();
  reply["choices"][0]["logprobs"]["token_logprobs"].erase(1);
  CHECK(refusal(reply) == "sample 5 on engine 1: 2 tokens but 1 log-probs");
  reply = good_reply();
  reply["choices"][0].erase("weight_versions");
  CHECK(refusal(reply).find("\"weight_versions\" is missing") != std::string::npos);
  reply = good_reply();
  reply["choices"].push_back(reply["choices"][0]);
  CHECK(refusal(reply).find("expected one choice") != std::string::npos);
  reply = good_reply();
  reply["choices"][0]["weight_versions"][0]["version"] = "latest";
  CHECK(refusal(reply).find("not an integer") != std::string::npos);
}

TEST_CASE("every sampling field is sent, so that an engine's defaults never apply") {
  const Json body = parse_json(completion_body({"sample 1", {5, 6}, {0.7, 1.0, -1, 9, {1}}, 77}, "m"));
  for (const char* key :
       {"temperature", "top_p", "top_k", "min_p", "n", "seed", "max_tokens", "stop_token_ids", "logprobs",
        "return_token_ids", "ignore_eos", "repetition_penalty", "presence_penalty", "frequency_penalty"}) {
    CAPTURE(key);
    CHECK(body.contains(key));
  }
  CHECK(body["prompt"] == Json({5, 6}));
  CHECK(body["seed"] == 77);
}

TEST_CASE("the run's token is not on an engine's command line") {
  EngineLaunch launch;
  launch.token = "secret";
  launch.device_uuids = {"a", "b"};
  const proc::Command command = engine_command(launch);
  for (const std::string& word : command.argv) CHECK(word.find("secret") == std::string::npos);
  CHECK(command.env.at("VIME_RUN_TOKEN") == "secret");
  CHECK(command.role == "engine-0");
}

TEST_CASE("prompt log-probs are read by token id, and what cannot be read names the place") {
  const std::vector<int64_t> sequence = {4, 7, 7};
  const Json good = parse_json(R"({"choices": [{"prompt_logprobs": [null,
    {"7": {"logprob": -0.5, "rank": 2, "decoded_token": null}, "3": {"logprob": -0.25, "rank": 1, "decoded_token": "x"}},
    {"7": {"logprob": -1.5, "rank": 1, "decoded_token": null}}]}]})");
  CHECK(parse_prompt_logprobs(good.dump(), sequence, "w") == std::vector<double>{-0.5, -1.5});
  const auto refused = [&](const Json& reply, const std::string& reason) {
    try {
      parse_prompt_logprobs(reply.dump(), sequence, "sequence 1 on engine 3");
      return false;
    } catch (const Error& error) {
      CAPTURE(error.message());
      CHECK(error.message().find("sequence 1 on engine 3") == 0);
      return error.message().find(reason) != std::string::npos;
    }
  };
  Json reply = good;
  reply["choices"][0]["prompt_logprobs"] = nullptr;
  CHECK(refused(reply, "expected prompt_logprobs of 3 tokens, found null"));
  reply = good;
  reply["choices"][0]["prompt_logprobs"].erase(2);
  CHECK(refused(reply, "expected prompt_logprobs of 3 tokens, found 2"));
  reply = good;
  reply["choices"][0]["prompt_logprobs"][1].erase("7");
  CHECK(refused(reply, "prompt log-prob 1: \"7\" is missing"));
  reply = good;
  reply["choices"][0]["prompt_logprobs"][2]["7"]["logprob"] = nullptr;
  CHECK(refused(reply, "prompt log-prob 2 is null, expected a finite number"));
}
