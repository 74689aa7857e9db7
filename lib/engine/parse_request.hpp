// Bodies of /v1/completions and /inference/v1/generate, read strictly: wrong types, unknown keys and settings that this
// engine does not act on are Error{refused} (HTTP 400) naming the key. Pure functions.
#pragma once

#include <string>

#include "base/json.hpp"
#include "engine/request.hpp"

namespace vime::engine {

// What requests are checked against.
struct ModelFacts {
  std::string name;  // the "model" of requests
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
};

// The model that a request names, or "" when it names none: a wrong one is answered 404, not 400.
std::string named_model(const Json& body);

// `request_id`: the X-Request-Id header, "" when absent (then the body's, then a random one).
//
// Lengths, as in vLLM: a prompt of max_model_len or more tokens is refused, as no output would fit; a completion whose
// prompt and max_tokens exceed max_model_len together is refused too, while generate ends there with finish reason
// length.
CompletionCall parse_completion(const Json& body, const std::string& request_id, const ModelFacts& model,
                                const TextCodec& text);
CompletionCall parse_generate(const Json& body, const std::string& request_id, const ModelFacts& model);

}  // namespace vime::engine
