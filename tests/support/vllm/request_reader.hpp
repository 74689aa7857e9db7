// Bodies of /v1/completions and /inference/v1/generate. Wrong types and values are HttpError{400}; so are sampling keys
// that vLLM does not have. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "support/vllm/generation.hpp"
#include "support/vllm/routes.hpp"

namespace vime::stand_in {

struct Ask {
  std::string id;  // without a prefix; "" when the body names none
  std::vector<std::vector<int32_t>> prompts;
  Sampling sampling;
  std::string cache_salt;
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool skip_special_tokens = true;
};

// HttpError{404} when the body names a model that is not served.
void check_model(const Json& body, const Server& server);
Ask read_completion(const Json& body, const Server& server);
Ask read_generate(const Json& body, const Server& server);

}  // namespace vime::stand_in
