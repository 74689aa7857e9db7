// The parts of a tokenizer.json, taken apart but not yet made into what they describe. Pure function; any thread.
#pragma once

#include <string>

#include "base/json.hpp"
#include "text/bpe.hpp"

namespace vime::text {

struct TokenizerJson {
  BpeOptions model;
  Json normalizer;  // null where absent, as the next three
  Json pre_tokenizer;
  Json post_processor;
  Json decoder;
  Json added_tokens = Json::array();
};

// Error{refused} when it is not JSON, when the model is not BPE, or when a vocabulary or merge list is damaged.
TokenizerJson parse_tokenizer_json(const std::string& text);

}  // namespace vime::text
