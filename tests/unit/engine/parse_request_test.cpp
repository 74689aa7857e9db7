#include "engine/parse_request.hpp"

#include <doctest/doctest.h>

#include "bench.hpp"

using namespace vime;
using namespace vime::engine;

namespace {

const ModelFacts kModel{"/models/m", 64, 50};

CompletionCall completion(const std::string& body) {
  return parse_completion(parse_json(body), "", kModel, number_codec());
}

std::string refusal(const std::string& body, bool generate = false) {
  try {
    if (generate) {
      parse_generate(parse_json(body), "", kModel);
    } else {
      completion(body);
    }
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string prompt_of(int length, const std::string& rest) {
  Json body = {{"prompt", std::vector<int>(static_cast<std::size_t>(length), 3)}};
  body.update(parse_json(rest));
  return body.dump();
}

}  // namespace

TEST_CASE("prompts may be ids, lists of ids, a string or strings") {
  using Prompts = std::vector<std::vector<int32_t>>;
  CHECK(completion(R"({"prompt":[3,4]})").prompts == Prompts{{3, 4}});
  CHECK(completion(R"({"prompt":[[3],[4,5]]})").prompts == Prompts{{3}, {4, 5}});
  CHECK(completion(R"({"prompt":"7 8"})").prompts == Prompts{{1, 7, 8}});
  CHECK(completion(R"({"prompt":["7","8 9"],"add_special_tokens":false})").prompts == Prompts{{7}, {8, 9}});
  CHECK_FALSE(refusal(R"({"prompt":[]})").empty());
  CHECK_FALSE(refusal(R"({"prompt":[[]]})").empty());
  CHECK_FALSE(refusal(R"({"prompt":["7",[8]]})").empty());
  CHECK_FALSE(refusal(R"({"prompt":[3,"4"]})").empty());
  CHECK_FALSE(refusal(R"({"prompt":3})").empty());
  CHECK_FALSE(refusal(R"({})").empty());
  CHECK(holds(refusal(R"({"prompt":[3,50]})"), "token id 50 is out of vocabulary"));
  CHECK_FALSE(refusal(R"({"prompt":[-1]})").empty());
  CHECK_FALSE(refusal(R"({"prompt":[1.5]})").empty());
  CHECK_FALSE(refusal(R"({"prompt":[18446744073709551615]})").empty());
}

TEST_CASE("all sampling settings arrive") {
  const CompletionCall call =
      completion(R"({"model":"/models/m","prompt":[3],"max_tokens":9,"min_tokens":2,"temperature":0.7,"top_p":0.9,
    "top_k":5,"min_p":0.1,"seed":-4,"n":3,"stop_token_ids":[7,8],"ignore_eos":true,"logprobs":0,"return_token_ids":true,
    "return_tokens_as_token_ids":true,"skip_special_tokens":false,"repetition_penalty":1.0,"presence_penalty":0,"cache_salt":"x",
    "priority":0,"stream":false,"request_id":"r","stop":[],"echo":false})");
  CHECK(call.id == "cmpl-r");
  CHECK(call.sampling.max_tokens == 9);
  CHECK(call.sampling.min_tokens == 2);
  CHECK(call.sampling.temperature == 0.7);
  CHECK(call.sampling.top_p == 0.9);
  CHECK(call.sampling.top_k == 5);
  CHECK(call.sampling.min_p == 0.1);
  CHECK(call.sampling.seed == static_cast<uint64_t>(-4));
  CHECK(call.sampling.n == 3);
  CHECK(call.sampling.stop_token_ids == std::vector<int32_t>{7, 8});
  CHECK(call.sampling.ignore_eos);
  CHECK(call.sampling.logprobs);
  CHECK(call.return_token_ids);
  CHECK(call.tokens_as_ids);
  CHECK_FALSE(call.skip_special_tokens);
  CHECK(completion(R"({"prompt":[3],"seed":18446744073709551615})").sampling.seed == ~uint64_t{0});
  CHECK(completion(R"({"prompt":[3],"top_k":0})").sampling.top_k == -1);
  CHECK(completion(R"({"prompt":[3],"logprobs":null})").sampling.logprobs == false);
}

TEST_CASE("unknown keys, wrong types and settings that are not served are refused by name") {
  CHECK(holds(refusal(R"({"prompt":[3],"max_token":4})"), "unknown key \"max_token\" (did you mean \"max_tokens\"?)"));
  for (const char* bad : {"\"max_tokens\":\"4\"",
                          "\"max_tokens\":0",
                          "\"max_tokens\":1.5",
                          "\"temperature\":-1",
                          "\"temperature\":\"0\"",
                          "\"temperature\":true",
                          "\"top_p\":0",
                          "\"top_p\":1.5",
                          "\"top_k\":-2",
                          "\"min_p\":2",
                          "\"n\":0",
                          "\"seed\":1.5",
                          "\"stop_token_ids\":[\"a\"]",
                          "\"stop_token_ids\":3",
                          "\"ignore_eos\":1",
                          "\"logprobs\":5",
                          "\"logprobs\":true",
                          "\"stream\":true",
                          "\"echo\":true",
                          "\"repetition_penalty\":1.1",
                          "\"presence_penalty\":0.5",
                          "\"stop\":[\"x\"]",
                          "\"prompt_logprobs\":2",
                          "\"prompt_logprobs\":-1",
                          "\"prompt_logprobs\":true",
                          "\"prompt_logprobs\":\"0\"",
                          "\"logit_bias\":{\"3\":1}",
                          "\"best_of\":4",
                          "\"return_token_ids\":\"yes\"",
                          "\"request_id\":5"}) {
    CAPTURE(bad);
    const std::string text = refusal(std::string("{\"prompt\":[3],") + bad + "}");
    const std::string key = std::string(bad).substr(0, std::string(bad).find(':'));
    CHECK(holds(text, key));
  }
  CHECK(holds(refusal(R"({"token_ids":[3],"sampling_params":{"max_tokns":3}})", true),
              "sampling_params: unknown key \"max_tokns\""));
  CHECK(holds(refusal(R"({"token_ids":[3],"prompt":"x"})", true), "unknown key \"prompt\""));
  CHECK(holds(refusal(R"({"sampling_params":{}})", true), "token_ids"));
  CHECK(holds(refusal(R"({"prompt":[3],"temperature":0,"n":2})"), "greedy"));
  CHECK(holds(refusal(R"({"prompt":[3],"min_tokens":9,"max_tokens":8})"), "min_tokens 9 exceeds max_tokens 8"));
  CHECK(holds(refusal("[]"), "expected a JSON object"));
}

TEST_CASE("prompt_logprobs is null, 0 or 1 on both routes, and more is refused in a sentence") {
  for (const int32_t value : {0, 1}) {
    const Json body = {{"prompt", {3}}, {"max_tokens", 1}, {"prompt_logprobs", value}};
    CHECK(completion(body.dump()).sampling.prompt_logprobs == value);
    const Json params = {{"max_tokens", 1}, {"prompt_logprobs", value}};
    const Json generate = {{"token_ids", {3}}, {"sampling_params", params}};
    CHECK(parse_generate(generate, "", kModel).sampling.prompt_logprobs == value);
  }
  CHECK_FALSE(completion(R"({"prompt":[3],"prompt_logprobs":null})").sampling.prompt_logprobs.has_value());
  CHECK_FALSE(completion(R"({"prompt":[3]})").sampling.prompt_logprobs.has_value());
  CHECK(holds(
      refusal(R"({"prompt":[3],"prompt_logprobs":5})"),
      "\"prompt_logprobs\": expected 0 or 1 (this engine returns the log-probs of the prompt's tokens, and of the "
      "most probable one), found 5"));
}

TEST_CASE("prompts of limit - 1, limit and limit + 1 tokens each have an outcome of their own") {
  CHECK(completion(prompt_of(63, R"({"max_tokens":1})")).prompts[0].size() == 63);
  CHECK(holds(refusal(prompt_of(64, R"({"max_tokens":1})")), "64 tokens and leaves no room for output"));
  CHECK(holds(refusal(prompt_of(65, R"({"max_tokens":1})")), "65 tokens and is too long"));
  CHECK(holds(refusal(prompt_of(63, R"({"max_tokens":2})")), "max_tokens of 2 is too large"));
  // generate cuts instead.
  Json body = {{"token_ids", std::vector<int>(63, 3)}, {"sampling_params", {{"max_tokens", 20}}}};
  CHECK(parse_generate(body, "", kModel).sampling.max_tokens == 20);
  body["token_ids"].push_back(3);
  CHECK(holds(refusal(body.dump(), true), "leaves no room for output"));
}

TEST_CASE("the header's request id wins over the body's, and an absent one is made up") {
  const Json body = parse_json(R"({"token_ids":[3],"request_id":"body"})");
  CHECK(parse_generate(body, "", kModel).id == "generate-tokens-body");
  CHECK(parse_generate(body, "header", kModel).id == "generate-tokens-header");
  const Json plain = parse_json(R"({"token_ids":[3]})");
  CHECK(parse_generate(plain, "", kModel).id != parse_generate(plain, "", kModel).id);
}
