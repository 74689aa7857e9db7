#include "support/vllm/request_reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "support/vllm/failures.hpp"

namespace vime::stand_in {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw HttpError(400, text);
}

// The keys of vLLM's CompletionRequest.
const std::vector<std::string>& completion_keys() {
  static const std::vector<std::string> keys = {"model",
                                                "prompt",
                                                "echo",
                                                "frequency_penalty",
                                                "logit_bias",
                                                "logprobs",
                                                "max_tokens",
                                                "n",
                                                "presence_penalty",
                                                "seed",
                                                "stop",
                                                "stream",
                                                "stream_options",
                                                "suffix",
                                                "temperature",
                                                "top_p",
                                                "user",
                                                "use_beam_search",
                                                "top_k",
                                                "min_p",
                                                "repetition_penalty",
                                                "length_penalty",
                                                "stop_token_ids",
                                                "include_stop_str_in_output",
                                                "ignore_eos",
                                                "min_tokens",
                                                "skip_special_tokens",
                                                "spaces_between_special_tokens",
                                                "truncate_prompt_tokens",
                                                "allowed_token_ids",
                                                "prompt_logprobs",
                                                "prompt_embeds",
                                                "add_special_tokens",
                                                "response_format",
                                                "structured_outputs",
                                                "priority",
                                                "logits_processors",
                                                "request_id",
                                                "return_token_ids",
                                                "return_tokens_as_token_ids",
                                                "cache_salt",
                                                "kv_transfer_params",
                                                "vllm_xargs",
                                                "bad_words"};
  return keys;
}

const std::vector<std::string>& generate_keys() {
  static const std::vector<std::string> keys = {
      "request_id", "token_ids", "sampling_params",    "model",   "stream", "stream_options",
      "cache_salt", "priority",  "kv_transfer_params", "features"};
  return keys;
}

// The keys of vLLM's SamplingParams.
const std::vector<std::string>& sampling_keys() {
  static const std::vector<std::string> keys = {"n",
                                                "temperature",
                                                "top_p",
                                                "top_k",
                                                "min_p",
                                                "seed",
                                                "stop",
                                                "stop_token_ids",
                                                "ignore_eos",
                                                "max_tokens",
                                                "min_tokens",
                                                "logprobs",
                                                "prompt_logprobs",
                                                "logprob_token_ids",
                                                "detokenize",
                                                "logit_bias",
                                                "allowed_token_ids",
                                                "bad_words",
                                                "presence_penalty",
                                                "frequency_penalty",
                                                "output_kind",
                                                "repetition_penalty",
                                                "skip_special_tokens",
                                                "spaces_between_special_tokens",
                                                "include_stop_str_in_output",
                                                "flat_logprobs",
                                                "extra_args"};
  return keys;
}

// The value of a key, or null when it is absent or null.
const Json* find(const Json& body, const char* key) {
  const auto found = body.find(key);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

// vLLM ignores keys that it does not know, and so a client never learns of its mistake.
void check_keys(const Json& body, const std::vector<std::string>& known) {
  for (const auto& [key, value] : body.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse("vLLM knows no key '" + key + "' here and would ignore it");
  }
}

std::optional<int64_t> integer(const Json& body, const char* key) {
  const Json* value = find(body, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse(std::string("Input should be a valid integer: ") + key);
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    refuse(std::string("Input should be less than or equal to 9223372036854775807: ") + key);
  return value->get<int64_t>();
}

std::optional<double> number(const Json& body, const char* key) {
  const Json* value = find(body, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(std::string("Input should be a valid number: ") + key);
  return value->get<double>();
}

bool flag(const Json& body, const char* key, bool otherwise) {
  const Json* value = find(body, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(std::string("Input should be a valid boolean: ") + key);
  return value->get<bool>();
}

std::string text(const Json& body, const char* key) {
  const Json* value = find(body, key);
  if (value == nullptr) return "";
  if (!value->is_string()) refuse(std::string("Input should be a valid string: ") + key);
  return value->get<std::string>();
}

std::vector<int32_t> ids(const Json& list, const char* key) {
  if (!list.is_array()) refuse(std::string("Input should be a valid list: ") + key);
  std::vector<int32_t> tokens;
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 ||
        item.get<int64_t>() > std::numeric_limits<int32_t>::max())
      refuse(std::string("Input should be a valid integer: ") + key);
    tokens.push_back(static_cast<int32_t>(item.get<int64_t>()));
  }
  return tokens;
}

// What would change the distribution in a way that the stand-in does not compute.
void check_neutral(const Json& body) {
  for (const auto& [key, neutral] : {std::pair{"presence_penalty", 0.0}, std::pair{"frequency_penalty", 0.0},
                                     std::pair{"repetition_penalty", 1.0}}) {
    if (number(body, key).value_or(neutral) != neutral) refuse(std::string("the stand-in computes no ") + key);
  }
  for (const char* key : {"logit_bias", "stop", "bad_words", "allowed_token_ids", "logprob_token_ids"}) {
    const Json* value = find(body, key);
    if (value != nullptr && !value->empty()) refuse(std::string("the stand-in does not act on ") + key);
  }
}

void check_ranges(const Sampling& sampling, const Server& server) {
  for (const int32_t id : sampling.stop_token_ids) {
    if (id >= server.vocab_size && server.flavour.newest_generate)
      refuse("stop_token_ids: token id " + std::to_string(id) + " is out of vocabulary");
  }
  if (sampling.n < 1) refuse("n must be at least 1, got " + std::to_string(sampling.n) + ".");
  if (sampling.n > server.arguments.max_num_seqs)
    refuse("n must not exceed max_num_seqs, got " + std::to_string(sampling.n) + ".");
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    refuse("temperature must be non-negative, got " + std::to_string(sampling.temperature) + ".");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    refuse("top_p must be in (0, 1], got " + std::to_string(sampling.top_p) + ".");
  if (sampling.top_k < -1)
    refuse("top_k must be 0 (disable), or at least 1, got " + std::to_string(sampling.top_k) + ".");
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    refuse("min_p must be in [0, 1], got " + std::to_string(sampling.min_p) + ".");
  if (sampling.max_tokens < 1)
    refuse("max_tokens must be at least 1, got " + std::to_string(sampling.max_tokens) + ".");
  if (sampling.min_tokens < 0 || sampling.min_tokens > sampling.max_tokens)
    refuse("min_tokens must be less than or equal to max_tokens=" + std::to_string(sampling.max_tokens) + ", got " +
           std::to_string(sampling.min_tokens) + ".");
  if (sampling.temperature == 0 && sampling.n > 1)
    refuse("n must be 1 when using greedy sampling, got " + std::to_string(sampling.n) + ".");
  for (const auto& asked : {sampling.logprobs, sampling.prompt_logprobs}) {
    if (asked && (*asked < -1 || *asked > server.arguments.max_logprobs)) {
      refuse("Requested sample logprobs of " + std::to_string(*asked) +
             ", which is greater than max allowed: " + std::to_string(server.arguments.max_logprobs));
    }
  }
}

// `defaults`: of what the body leaves out.
Sampling read_sampling(const Json& body, const Json& defaults) {
  const auto of = [&](const char* key, double otherwise) {
    const auto given = number(body, key);
    return given ? *given : number(defaults, key).value_or(otherwise);
  };
  Sampling sampling;
  sampling.n = static_cast<int32_t>(integer(body, "n").value_or(1));
  sampling.temperature = of("temperature", 1.0);
  sampling.top_p = of("top_p", 1.0);
  sampling.top_k = static_cast<int32_t>(of("top_k", -1));
  sampling.min_p = of("min_p", 0.0);
  sampling.min_tokens = integer(body, "min_tokens").value_or(0);
  if (const auto seed = integer(body, "seed")) sampling.seed = static_cast<uint64_t>(*seed);
  if (const Json* list = find(body, "stop_token_ids")) sampling.stop_token_ids = ids(*list, "stop_token_ids");
  sampling.ignore_eos = flag(body, "ignore_eos", false);
  if (const auto count = integer(body, "logprobs")) sampling.logprobs = static_cast<int32_t>(*count);
  if (const auto count = integer(body, "prompt_logprobs")) sampling.prompt_logprobs = static_cast<int32_t>(*count);
  if (sampling.top_k == 0) sampling.top_k = -1;
  if (sampling.temperature < 1e-5 && sampling.temperature > 0) sampling.temperature = 0;
  check_neutral(body);
  return sampling;
}

void read_common(const Json& body, const Server& server, Ask& ask) {
  if (flag(body, "stream", false)) refuse("the stand-in does not stream");
  ask.id = text(body, "request_id");
  if (const Json* salt = find(body, "cache_salt"); salt != nullptr) {
    ask.cache_salt = text(body, "cache_salt");
    if (ask.cache_salt.empty()) refuse("Parameter 'cache_salt' must be a non-empty string if provided.");
  }
  const int64_t priority = integer(body, "priority").value_or(0);
  if (priority != 0 && server.arguments.scheduling_policy != "priority")
    refuse("Got priority " + std::to_string(priority) + " but Priority scheduling is not enabled.");
}

void check_prompt(const std::vector<int32_t>& prompt, const Server& server) {
  if (prompt.empty()) refuse("The decoder prompt cannot be empty");
  const auto length = static_cast<int64_t>(prompt.size());
  if (length >= server.max_model_len) {
    refuse("This model's maximum context length is " + std::to_string(server.max_model_len) +
           " tokens. However, your request has " + std::to_string(length) +
           " input tokens. Please reduce the length of the input messages.");
  }
  for (const int32_t id : prompt) {
    // Older releases find out on the GPU.
    if (id >= server.vocab_size && server.flavour.newest_generate)
      refuse("Token id " + std::to_string(id) + " is out of vocabulary");
  }
}

std::vector<int32_t> encode(const Server& server, const std::string& prompt, bool special) {
  if (!server.tokenizer) refuse("the stand-in found no tokenizer in the model's folder");
  const std::vector<int64_t> tokens = server.tokenizer->encode(prompt, special);
  return {tokens.begin(), tokens.end()};
}

std::vector<std::vector<int32_t>> read_prompts(const Json& prompt, const Server& server, bool special) {
  if (prompt.is_string()) return {encode(server, prompt.get<std::string>(), special)};
  if (!prompt.is_array() || prompt.empty()) refuse("Either prompt or prompt_embeds must be provided and non-empty.");
  if (prompt.front().is_number()) return {ids(prompt, "prompt")};
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& item : prompt)
    prompts.push_back(item.is_string() ? encode(server, item.get<std::string>(), special) : ids(item, "prompt"));
  return prompts;
}

}  // namespace

void check_model(const Json& body, const Server& server) {
  const std::string model = text(body, "model");
  const auto& served = server.arguments.served_names;
  if (model.empty() || std::find(served.begin(), served.end(), model) != served.end()) return;
  throw HttpError(404, "The model `" + model + "` does not exist.");
}

Ask read_completion(const Json& body, const Server& server) {
  Ask ask;
  check_keys(body, completion_keys());
  read_common(body, server, ask);
  ask.sampling = read_sampling(body, server.generation_defaults);
  ask.sampling.max_tokens = integer(body, "max_tokens").value_or(16);
  ask.return_token_ids = flag(body, "return_token_ids", false);
  ask.tokens_as_ids = flag(body, "return_tokens_as_token_ids", false);
  ask.skip_special_tokens = flag(body, "skip_special_tokens", true);
  if (flag(body, "echo", false)) refuse("the stand-in does not echo");
  const Json* prompt = find(body, "prompt");
  if (prompt == nullptr) refuse("Either prompt or prompt_embeds must be provided and non-empty.");
  ask.prompts = read_prompts(*prompt, server, flag(body, "add_special_tokens", true));
  check_ranges(ask.sampling, server);
  for (const auto& tokens : ask.prompts) {
    check_prompt(tokens, server);
    const auto length = static_cast<int64_t>(tokens.size());
    if (length + ask.sampling.max_tokens > server.max_model_len && !server.flavour.newest_generate) {
      refuse("'max_tokens' or 'max_completion_tokens' is too large: " + std::to_string(ask.sampling.max_tokens) +
             ". This model's maximum context length is " + std::to_string(server.max_model_len) +
             " tokens and your request has " + std::to_string(length) + " input tokens (" +
             std::to_string(ask.sampling.max_tokens) + " > " + std::to_string(server.max_model_len) + " - " +
             std::to_string(length) + ").");
    }
  }
  return ask;
}

Ask read_generate(const Json& body, const Server& server) {
  Ask ask;
  check_keys(body, generate_keys());
  read_common(body, server, ask);
  if (find(body, "token_ids") == nullptr)
    refuse("[{'type': 'missing', 'loc': ('body', 'token_ids'), 'msg': 'Field required'}]");
  const Json* sampling = find(body, "sampling_params");
  if (sampling == nullptr || !sampling->is_object())
    refuse("[{'type': 'missing', 'loc': ('body', 'sampling_params'), 'msg': 'Field required'}]");
  check_keys(*sampling, sampling_keys());
  ask.prompts = {ids(body["token_ids"], "token_ids")};
  check_prompt(ask.prompts.front(), server);
  ask.sampling = read_sampling(*sampling, Json::object());
  const int64_t room = server.max_model_len - static_cast<int64_t>(ask.prompts.front().size());
  const int64_t otherwise = server.flavour.generate_max_tokens > 0 ? server.flavour.generate_max_tokens : room;
  ask.sampling.max_tokens = integer(*sampling, "max_tokens").value_or(otherwise);
  check_ranges(ask.sampling, server);
  return ask;
}

}  // namespace vime::stand_in
