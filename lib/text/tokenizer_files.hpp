// The files that make up a tokenizer in a Hugging Face model directory, and what they say beside the vocabulary: which
// tokens end, begin and pad a text, and the chat template. Reads block on the disk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::text {

constexpr const char* kTokenizerFile = "tokenizer.json";

// Copies every tokenizer file that `from` has, byte for byte, and takes away those that only `to` has: two tokenizers
// must not mix. Gives the names copied. Nothing to do when both are the same directory.
std::vector<std::string> copy_tokenizer_files(const fs::path& from, const fs::path& to);

// What tokenizer_config.json, special_tokens_map.json, generation_config.json and config.json say; the first that names
// a token decides.
struct SpecialTokens {
  std::optional<std::string> bos, eos, pad, unk;  // the tokens' texts, as in tokenizer_config.json
  std::optional<int64_t> bos_id, eos_id, pad_id;  // from generation_config.json or config.json
};
SpecialTokens read_special_tokens(const fs::path& model_dir);

// The JSON object in <model_dir>/<name>; an empty one when there is no such file. Error{refused} when it is no object.
Json read_json_object(const fs::path& model_dir, const std::string& name);

}  // namespace vime::text
