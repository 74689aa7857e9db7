#include "engine/format_reply.hpp"

#include <algorithm>
#include <ctime>

#include "base/json.hpp"

namespace vime::engine {
namespace {

// vLLM's floor for log-probs in JSON.
constexpr float kLeastLogprob = -9999.0f;

Json reported(float logprob) {
  return static_cast<double>(std::max(logprob, kLeastLogprob));
}

std::string token_name(int32_t id) {
  return "token_id:" + std::to_string(id);
}

Json version_spans(const std::vector<VersionSpan>& spans) {
  Json list = Json::array();
  for (const VersionSpan& span : spans)
    list.push_back({{"version", span.version}, {"start", span.start}, {"end", span.end}});
  return list;
}

// The token that stopped the text is not part of it.
std::string text_of(const Choice& choice, const CompletionCall& call, const TextCodec& text) {
  if (!text.decode) return "";
  std::vector<int32_t> ids = choice.token_ids;
  if (choice.reason == FinishReason::stop && !ids.empty()) ids.pop_back();
  return text.decode(ids, call.skip_special_tokens);
}

Json completion_logprobs(const Choice& choice, const CompletionCall& call, const TextCodec& text) {
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json offsets = Json::array();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < choice.token_ids.size(); ++i) {
    const int32_t id = choice.token_ids[i];
    const bool as_id = call.tokens_as_ids || !text.decode;
    const std::string token = as_id ? token_name(id) : text.decode({id}, false);
    tokens.push_back(token);
    logprobs.push_back(reported(choice.logprobs[i]));
    offsets.push_back(offset);
    offset += token.size();
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", nullptr},
          {"text_offset", std::move(offsets)}};
}

// vLLM's form: a list with null for the first token, then {"<id>": {"logprob", "rank", "decoded_token"}} of the
// prompt's token and, when asked for, of the most probable one. Null when nothing was asked for.
Json prompt_logprobs(const CompletionCall& call, std::size_t prompt, const GenerationResult& result,
                     const TextCodec& text) {
  if (!call.sampling.prompt_logprobs) return nullptr;
  const auto entry = [&](int32_t id, float logprob, int32_t rank) -> Json {
    return {{"logprob", reported(logprob)},
            {"rank", rank},
            {"decoded_token", text.decode ? Json(text.decode({id}, false)) : Json(nullptr)}};
  };
  Json list = Json::array({nullptr});
  for (std::size_t i = 0; i < result.prompt_logprobs.size(); ++i) {
    const PromptLogprob& found = result.prompt_logprobs[i];
    const int32_t id = call.prompts[prompt][i + 1];
    Json tokens = {{std::to_string(id), entry(id, found.logprob, found.rank)}};
    if (*call.sampling.prompt_logprobs > 0 && found.top_token != id)
      tokens[std::to_string(found.top_token)] = entry(found.top_token, found.top_logprob, 1);
    list.push_back(std::move(tokens));
  }
  return list;
}

Json completion_choice(const Choice& choice, std::size_t index, const CompletionCall& call, const Json& of_prompt,
                       const TextCodec& text) {
  Json json = {{"index", index},
               {"text", text_of(choice, call, text)},
               {"logprobs", call.sampling.logprobs ? completion_logprobs(choice, call, text) : Json(nullptr)},
               {"finish_reason", finish_reason_name(choice.reason)},
               {"stop_reason", choice.stop_token ? Json(*choice.stop_token) : Json(nullptr)},
               {"prompt_logprobs", of_prompt}};
  if (call.return_token_ids) {
    json["token_ids"] = choice.token_ids;
    json["prompt_token_ids"] = call.prompts[index / static_cast<std::size_t>(call.sampling.n)];
  }
  json["weight_versions"] = version_spans(choice.versions);
  return json;
}

Json generate_choice(const Choice& choice, std::size_t index, const CompletionCall& call) {
  Json logprobs = nullptr;
  if (call.sampling.logprobs) {
    Json content = Json::array();
    for (std::size_t i = 0; i < choice.token_ids.size(); ++i) {
      content.push_back({{"token", token_name(choice.token_ids[i])},
                         {"token_id", choice.token_ids[i]},
                         {"logprob", reported(choice.logprobs[i])},
                         {"top_logprobs", Json::array()}});
    }
    logprobs = {{"content", std::move(content)}};
  }
  return {{"index", index},
          {"token_ids", choice.token_ids},
          {"finish_reason", finish_reason_name(choice.reason)},
          {"stop_reason", choice.stop_token ? Json(*choice.stop_token) : Json(nullptr)},
          {"logprobs", std::move(logprobs)},
          {"weight_versions", version_spans(choice.versions)}};
}

Json usage(const CompletionCall& call, const std::vector<GenerationResult>& results) {
  std::size_t prompt = 0;
  std::size_t output = 0;
  for (const auto& ids : call.prompts) prompt += ids.size();
  for (const GenerationResult& result : results) {
    for (const Choice& choice : result.choices) output += choice.token_ids.size();
  }
  return {{"prompt_tokens", prompt}, {"completion_tokens", output}, {"total_tokens", prompt + output}};
}

http::Response json_response(const Json& body) {
  return {200, body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json"};
}

std::string failure_of(const std::vector<GenerationResult>& results) {
  for (const GenerationResult& result : results) {
    if (!result.error.empty()) return result.error;
  }
  return "";
}

}  // namespace

http::Response completion_reply(const CompletionCall& call, const std::vector<GenerationResult>& results,
                                const std::string& model, const TextCodec& text) {
  if (const std::string error = failure_of(results); !error.empty()) return http::error_response(500, error);
  Json choices = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Json of_prompt = prompt_logprobs(call, i, results[i], text);
    for (const Choice& choice : results[i].choices)
      choices.push_back(completion_choice(choice, choices.size(), call, of_prompt, text));
  }
  return json_response({{"id", call.id},
                        {"object", "text_completion"},
                        {"created", std::time(nullptr)},
                        {"model", model},
                        {"choices", std::move(choices)},
                        {"usage", usage(call, results)}});
}

http::Response generate_reply(const CompletionCall& call, const std::vector<GenerationResult>& results,
                              const std::string& model) {
  if (const std::string error = failure_of(results); !error.empty()) return http::error_response(500, error);
  Json choices = Json::array();
  for (const Choice& choice : results.at(0).choices) choices.push_back(generate_choice(choice, choices.size(), call));
  return json_response({{"request_id", call.id},
                        {"created", std::time(nullptr)},
                        {"model", model},
                        {"choices", std::move(choices)},
                        {"usage", usage(call, results)},
                        {"prompt_logprobs", prompt_logprobs(call, 0, results.at(0), {})},
                        {"kv_transfer_params", nullptr}});
}

}  // namespace vime::engine
