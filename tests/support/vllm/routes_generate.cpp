// /v1/completions, /inference/v1/generate and /abort_requests.
#include <algorithm>
#include <ctime>
#include <memory>

#include "base/random.hpp"
#include "support/vllm/failures.hpp"
#include "support/vllm/request_reader.hpp"
#include "support/vllm/routes.hpp"

namespace vime::stand_in {
namespace {

using Works = std::vector<std::shared_ptr<Work>>;

// vLLM's floor for log-probs in JSON.
Json reported(float logprob) {
  return static_cast<double>(std::max(logprob, -9999.0f));
}

std::string token_name(int32_t id) {
  return "token_id:" + std::to_string(id);
}

std::string token_text(const Server& server, int32_t id) {
  return server.tokenizer ? server.tokenizer->decode(std::vector<int64_t>{id}, false) : token_name(id);
}

Works make_works(const Ask& ask, const std::string& prefix, const Call& call, bool numbered, std::string* reply_id) {
  const std::string header = call.request.header("x-request-id");
  *reply_id = prefix + (!header.empty() ? header : !ask.id.empty() ? ask.id : random_token());
  Works works;
  for (const auto& prompt : ask.prompts) {
    auto work = std::make_shared<Work>();
    work->id = numbered ? *reply_id + "-" + std::to_string(works.size()) : *reply_id;
    work->prompt = prompt;
    work->sampling = ask.sampling;
    work->cache_salt = ask.cache_salt;
    work->abort_after = call.abort_after;
    works.push_back(std::move(work));
  }
  return works;
}

// null for the first token, then {"<id>": {"logprob", "rank", "decoded_token"}} of the prompt's own and the top tokens.
Json prompt_logprobs(const Server& server, const Work& work, bool with_text) {
  if (!work.sampling.prompt_logprobs) return nullptr;
  Json list = Json::array({nullptr});
  const auto entry = [&](const TokenLogprob& token) -> Json {
    return {{"logprob", reported(token.logprob)},
            {"rank", token.rank},
            {"decoded_token", with_text && server.tokenizer ? Json(token_text(server, token.token)) : Json(nullptr)}};
  };
  for (const TokenPlace& place : work.prompt_places) {
    Json tokens = {{std::to_string(place.own.token), entry(place.own)}};
    for (const TokenLogprob& token : place.top) {
      if (token.token != place.own.token) tokens[std::to_string(token.token)] = entry(token);
    }
    list.push_back(std::move(tokens));
  }
  return list;
}

Json usage(const Works& works) {
  std::size_t prompt = 0;
  std::size_t output = 0;
  for (const auto& work : works) {
    prompt += work->prompt.size();
    for (const Choice& choice : work->choices) output += choice.tokens.size();
  }
  return {{"prompt_tokens", prompt},
          {"total_tokens", prompt + output},
          {"completion_tokens", output},
          {"prompt_tokens_details", nullptr}};
}

Json completion_logprobs(const Server& server, const Ask& ask, const Choice& choice) {
  const auto name = [&](int32_t id) { return ask.tokens_as_ids ? token_name(id) : token_text(server, id); };
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  std::size_t offset = 0;
  for (const TokenPlace& place : choice.places) {
    const std::string token = name(place.own.token);
    tokens.push_back(token);
    logprobs.push_back(reported(place.own.logprob));
    Json top = {{token, reported(place.own.logprob)}};
    for (const TokenLogprob& other : place.top) top[name(other.token)] = reported(other.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += token.size();
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(tokens)},
          {"top_logprobs", std::move(tops)}};
}

std::string text_of(const Server& server, const Ask& ask, const Choice& choice) {
  if (!server.tokenizer) return "";
  std::vector<int64_t> ids(choice.tokens.begin(), choice.tokens.end());
  if (choice.finish_reason == "stop" && !ids.empty()) ids.pop_back();
  return server.tokenizer->decode(ids, ask.skip_special_tokens);
}

http::Response complete(Server& server, const Call& call) {
  check_content_type(call.request);
  const Json body = body_object(call.request);
  check_model(body, server);
  const Ask ask = read_completion(body, server);
  std::string id;
  const Works works = make_works(ask, "cmpl-", call, true, &id);
  server.engine.generate(works, call.gone);
  Json choices = Json::array();
  for (const auto& work : works) {
    for (const Choice& choice : work->choices) {
      choices.push_back({{"index", choices.size()},
                         {"text", text_of(server, ask, choice)},
                         {"logprobs", ask.sampling.logprobs ? completion_logprobs(server, ask, choice) : Json(nullptr)},
                         {"finish_reason", choice.finish_reason},
                         {"stop_reason", choice.stop_token ? Json(*choice.stop_token) : Json(nullptr)},
                         {"token_ids", ask.return_token_ids ? Json(choice.tokens) : Json(nullptr)},
                         {"prompt_logprobs", prompt_logprobs(server, *work, true)},
                         {"prompt_token_ids", ask.return_token_ids ? Json(work->prompt) : Json(nullptr)},
                         {"routed_experts", nullptr}});
    }
  }
  return json_response({{"id", id},
                        {"object", "text_completion"},
                        {"created", std::time(nullptr)},
                        {"model", server.arguments.served_names.front()},
                        {"choices", std::move(choices)},
                        {"service_tier", nullptr},
                        {"system_fingerprint", nullptr},
                        {"usage", usage(works)},
                        {"kv_transfer_params", nullptr}});
}

// Older releases name a token "token_id:<id>", the newest says its id and rank as numbers.
Json generate_logprobs(const Choice& choice, bool newest) {
  const auto entry = [&](const TokenLogprob& token) -> Json {
    if (newest) return {{"token_id", token.token}, {"logprob", reported(token.logprob)}, {"rank", token.rank}};
    return {{"token", token_name(token.token)}, {"logprob", reported(token.logprob)}, {"bytes", nullptr}};
  };
  Json content = Json::array();
  for (const TokenPlace& place : choice.places) {
    Json own = entry(place.own);
    Json top = Json::array();
    for (const TokenLogprob& token : place.top) top.push_back(entry(token));
    own["top_logprobs"] = std::move(top);
    content.push_back(std::move(own));
  }
  return {{"content", std::move(content)}};
}

Json version_spans(const Choice& choice) {
  Json spans = Json::array();
  for (const VersionSpan& span : choice.versions)
    spans.push_back({{"version", span.version}, {"start", span.start}, {"end", span.end}});
  return spans;
}

http::Response generate(Server& server, const Call& call) {
  if (server.flavour.newest_generate && !server.arguments.scale_out && !server.arguments.tokens_only) {
    throw HttpError(403,
                    "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.");
  }
  check_content_type(call.request);
  const Json body = body_object(call.request);
  check_model(body, server);
  const Ask ask = read_generate(body, server);
  std::string id;
  const Works works = make_works(ask, "generate-tokens-", call, false, &id);
  server.engine.generate(works, call.gone);
  const bool newest = server.flavour.newest_generate;
  Json choices = Json::array();
  for (const Choice& choice : works.front()->choices) {
    Json one = {{"index", choices.size()},
                {"logprobs", ask.sampling.logprobs ? generate_logprobs(choice, newest) : Json(nullptr)},
                {"finish_reason", choice.finish_reason},
                {"token_ids", choice.tokens},
                {"routed_experts", nullptr}};
    if (newest) {
      one["stop_reason"] = choice.stop_token ? Json(*choice.stop_token) : Json(nullptr);
      one["sampling_mask"] = nullptr;
      one["weight_versions"] = version_spans(choice);
    }
    choices.push_back(std::move(one));
  }
  // Older releases lose all samples but the last when they do not stream.
  if (!newest) choices = Json::array({choices.back()});
  Json reply = {{"request_id", id},
                {"created", std::time(nullptr)},
                {"model", server.arguments.served_names.front()},
                {"choices", std::move(choices)},
                {"usage", usage(works)},
                {"prompt_logprobs", prompt_logprobs(server, *works.front(), false)},
                {"kv_transfer_params", nullptr}};
  if (newest) reply["output_mode"] = "tokens";
  return json_response(reply);
}

std::vector<std::string> request_ids(const Json& body) {
  std::vector<std::string> ids;
  if (!body["request_ids"].is_array()) throw HttpError(400, "Input should be a valid list: request_ids");
  for (const Json& id : body["request_ids"]) {
    if (!id.is_string()) throw HttpError(400, "Input should be a valid string: request_ids");
    ids.push_back(id.get<std::string>());
  }
  return ids;
}

http::Response abort_requests(Server& server, const Call& call) {
  const Json body = body_object(call.request);
  const bool named = body.contains("request_ids");
  if (!named && !server.flavour.aborts_and_drafts) throw HttpError(400, "Missing 'request_ids' in request body");
  const int64_t count = named ? server.engine.abort_ids(request_ids(body)) : server.engine.abort_all();
  if (!server.flavour.aborts_and_drafts) return empty_response();
  return json_response({{"status", "aborted"}, {"aborted", count}});
}

}  // namespace

void Routes::add_generation(Server& server) {
  const ServeArguments& arguments = server.arguments;
  add("POST", "/v1/completions", [&server](const Call& call) { return complete(server, call); });
  add("POST", "/inference/v1/generate", [&server](const Call& call) { return generate(server, call); });
  if (server.flavour.aborts_and_drafts ? server.environment.dev_mode : arguments.tokens_only)
    add("POST", "/abort_requests", [&server](const Call& call) { return abort_requests(server, call); });
}

}  // namespace vime::stand_in
