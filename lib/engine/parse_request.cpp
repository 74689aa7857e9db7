#include "engine/parse_request.hpp"

#include <limits>

#include "base/random.hpp"
#include "engine/fields.hpp"

namespace vime::engine {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxSamples = 16384;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::refused, message);
}

// Settings of vLLM's sampling that would change the distribution: only their neutral values are served.
void read_neutral(Fields& fields) {
  fields.neutral("presence_penalty", {0});
  fields.neutral("frequency_penalty", {0});
  fields.neutral("repetition_penalty", {1});
  fields.neutral("length_penalty", {1});
  fields.neutral("logit_bias", {Json::object()});
  fields.neutral("stop", {Json::array(), ""});
  fields.neutral("bad_words", {Json::array()});
  fields.neutral("allowed_token_ids", {nullptr});
  fields.neutral("logprob_token_ids", {nullptr});
  fields.neutral("include_stop_str_in_output", {false});
  fields.neutral("use_beam_search", {false});
  fields.ignore("detokenize");
  fields.ignore("spaces_between_special_tokens");
}

Sampling read_sampling(Fields& fields) {
  Sampling sampling;
  sampling.n = static_cast<int32_t>(fields.integer("n", 1, kMaxSamples).value_or(1));
  sampling.max_tokens = fields.integer("max_tokens", 1, kHighest).value_or(0);
  sampling.min_tokens = fields.integer("min_tokens", 0, kHighest).value_or(0);
  sampling.temperature = fields.number("temperature").value_or(1.0);
  if (sampling.temperature < 0) fields.refuse("temperature", "a number >= 0");
  sampling.top_p = fields.number("top_p").value_or(1.0);
  if (sampling.top_p <= 0 || sampling.top_p > 1) fields.refuse("top_p", "a number in (0, 1]");
  sampling.top_k = static_cast<int32_t>(fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()).value_or(-1));
  if (sampling.top_k == 0) sampling.top_k = -1;
  sampling.min_p = fields.number("min_p").value_or(0.0);
  if (sampling.min_p < 0 || sampling.min_p > 1) fields.refuse("min_p", "a number in [0, 1]");
  if (const Json* seed = fields.find("seed"); seed != nullptr) {
    if (seed->is_number_unsigned()) {
      sampling.seed = seed->get<uint64_t>();
    } else {
      sampling.seed = static_cast<uint64_t>(*fields.integer("seed", kLowest, kHighest));
    }
  }
  sampling.stop_token_ids = fields.ids("stop_token_ids").value_or(std::vector<int32_t>{});
  sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  if (const auto logprobs = fields.integer("logprobs", 0, kHighest)) {
    if (*logprobs != 0) fields.refuse("logprobs", "0 (this engine returns the log-probs of sampled tokens only)");
    sampling.logprobs = true;
  }
  if (const auto prompt_logprobs = fields.integer("prompt_logprobs", kLowest, kHighest)) {
    if (*prompt_logprobs != 0 && *prompt_logprobs != 1) {
      fields.refuse("prompt_logprobs",
                    "0 or 1 (this engine returns the log-probs of the prompt's tokens, and of the most probable one)");
    }
    sampling.prompt_logprobs = static_cast<int32_t>(*prompt_logprobs);
  }
  // Below this vLLM samples greedily.
  if (sampling.temperature < 1e-5) sampling.temperature = 0;
  if (sampling.temperature == 0 && sampling.n > 1)
    refuse("n must be 1 with greedy sampling (temperature 0), found " + std::to_string(sampling.n));
  return sampling;
}

std::vector<std::vector<int32_t>> read_prompts(const Json& prompt, bool add_special_tokens, const TextCodec& text) {
  const auto encode = [&](const std::string& value) {
    if (!text.encode) refuse("\"prompt\": this engine has no tokenizer, so prompts must be lists of token ids");
    return text.encode(value, add_special_tokens);
  };
  if (prompt.is_string()) return {encode(prompt.get<std::string>())};
  if (!prompt.is_array() || prompt.empty())
    refuse("\"prompt\": expected token ids, a list of them, a string or a list of strings, and not empty");
  if (prompt.front().is_number()) return {token_list(prompt, "\"prompt\"")};
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& item : prompt) {
    if (item.is_string() != prompt.front().is_string()) refuse("\"prompt\": a list mixes strings and token ids");
    prompts.push_back(item.is_string() ? encode(item.get<std::string>())
                                       : token_list(item, "\"prompt\"[" + std::to_string(prompts.size()) + "]"));
  }
  return prompts;
}

void check_prompt(const std::vector<int32_t>& prompt, const ModelFacts& model) {
  const auto length = static_cast<int64_t>(prompt.size());
  if (length == 0) refuse("the prompt is empty: at least one token is needed");
  const std::string limit = "this model's maximum context length is " + std::to_string(model.max_model_len) + " tokens";
  if (length > model.max_model_len)
    refuse("the prompt has " + std::to_string(length) + " tokens and is too long: " + limit);
  if (length == model.max_model_len) {
    refuse("the prompt has " + std::to_string(length) + " tokens and leaves no room for output: " + limit);
  }
  for (const int32_t id : prompt) {
    if (id >= model.vocab_size) {
      refuse("token id " + std::to_string(id) + " is out of vocabulary: the model has " +
             std::to_string(model.vocab_size) + " tokens");
    }
  }
}

void check_limits(CompletionCall& call, const ModelFacts& model, bool may_cut) {
  Sampling& sampling = call.sampling;
  for (const auto& prompt : call.prompts) {
    check_prompt(prompt, model);
    const int64_t room = model.max_model_len - static_cast<int64_t>(prompt.size());
    if (sampling.max_tokens > room && !may_cut) {
      refuse("max_tokens of " + std::to_string(sampling.max_tokens) +
             " is too large: this model's maximum context length is " + std::to_string(model.max_model_len) +
             " tokens and the prompt has " + std::to_string(prompt.size()));
    }
  }
  if (sampling.min_tokens > sampling.max_tokens) {
    refuse("min_tokens " + std::to_string(sampling.min_tokens) + " exceeds max_tokens " +
           std::to_string(sampling.max_tokens));
  }
}

std::string call_id(const char* prefix, Fields& fields, const std::string& header) {
  const auto own = fields.text("request_id");
  return prefix + (!header.empty() ? header : own && !own->empty() ? *own : random_token());
}

}  // namespace

std::string named_model(const Json& body) {
  if (!body.is_object()) return "";
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return "";
  if (!found->is_string()) refuse("\"model\": expected a string, found " + found->dump());
  return found->get<std::string>();
}

CompletionCall parse_completion(const Json& body, const std::string& request_id, const ModelFacts& model,
                                const TextCodec& text) {
  Fields fields(body, "completion request");
  CompletionCall call;
  call.id = call_id("cmpl-", fields, request_id);
  fields.ignore("model");
  const Json* prompt = fields.find("prompt");
  const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  call.sampling = read_sampling(fields);
  read_neutral(fields);
  if (call.sampling.max_tokens == 0) call.sampling.max_tokens = 16;
  call.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  call.tokens_as_ids = fields.boolean("return_tokens_as_token_ids").value_or(false);
  call.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  fields.neutral("stream", {false});
  fields.neutral("echo", {false});
  fields.neutral("best_of", {1, call.sampling.n});
  for (const char* key : {"suffix", "prompt_embeds", "stream_options", "response_format", "truncate_prompt_tokens",
                          "kv_transfer_params"}) {
    fields.neutral(key, {nullptr});
  }
  for (const char* key : {"user", "cache_salt", "priority"}) fields.ignore(key);
  fields.finish();
  if (prompt == nullptr) refuse("completion request: \"prompt\" is missing");
  call.prompts = read_prompts(*prompt, add_special_tokens, text);
  check_limits(call, model, false);
  return call;
}

CompletionCall parse_generate(const Json& body, const std::string& request_id, const ModelFacts& model) {
  Fields fields(body, "generate request");
  CompletionCall call;
  call.id = call_id("generate-tokens-", fields, request_id);
  fields.ignore("model");
  const auto prompt = fields.ids("token_ids");
  const Json* sampling = fields.find("sampling_params");
  fields.neutral("stream", {false});
  for (const char* key : {"stream_options", "kv_transfer_params", "features"}) fields.neutral(key, {nullptr});
  for (const char* key : {"cache_salt", "priority"}) fields.ignore(key);
  fields.finish();
  if (!prompt) refuse("generate request: \"token_ids\" is missing");
  const Json none = Json::object();
  Fields params(sampling == nullptr ? none : *sampling, "sampling_params");
  call.sampling = read_sampling(params);
  read_neutral(params);
  params.ignore("skip_special_tokens");
  params.finish();
  call.prompts = {*prompt};
  check_prompt(*prompt, model);
  if (call.sampling.max_tokens == 0) call.sampling.max_tokens = model.max_model_len;
  check_limits(call, model, true);
  return call;
}

}  // namespace vime::engine
