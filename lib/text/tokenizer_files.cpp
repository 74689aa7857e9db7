#include "text/tokenizer_files.hpp"

#include "base/error.hpp"
#include "text/component_json.hpp"

namespace vime::text {
namespace {

constexpr const char* kFiles[] = {
    kTokenizerFile, "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",   "chat_template.jinja",   "chat_template.json",      "added_tokens.json"};

// A token is written as its text, or as an object with the text in "content".
std::optional<std::string> token_text(const Json& config, const char* key) {
  const Json* token = optional_member(config, key);
  if (token == nullptr) return std::nullopt;
  if (token->is_object()) token = optional_member(*token, "content");
  if (token == nullptr || !token->is_string()) return std::nullopt;
  return token->get<std::string>();
}

// An id, or the first of a list of ids.
std::optional<int64_t> token_id(const Json& config, const char* key) {
  const Json* id = optional_member(config, key);
  if (id != nullptr && id->is_array() && !id->empty()) id = &(*id)[0];
  if (id == nullptr || !id->is_number_integer() || id->get<int64_t>() < 0) return std::nullopt;
  return id->get<int64_t>();
}

}  // namespace

Json read_json_object(const fs::path& model_dir, const std::string& name) {
  const fs::path path = model_dir / name;
  if (!fs::exists(path)) return Json::object();
  Json json = parse_json(read_file(path), path.string(), ErrorKind::refused);
  if (!json.is_object()) throw Error(ErrorKind::refused, path.string() + ": expected an object");
  return json;
}

std::vector<std::string> copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  std::vector<std::string> copied;
  std::error_code ignored;
  if (fs::equivalent(from, to, ignored)) return copied;
  for (const char* name : kFiles) {
    if (fs::exists(from / name)) {
      write_file_atomic(to / name, read_file(from / name));
      copied.emplace_back(name);
    } else {
      fs::remove(to / name, ignored);
    }
  }
  return copied;
}

SpecialTokens read_special_tokens(const fs::path& model_dir) {
  SpecialTokens tokens;
  const auto take = [](auto& value, auto found) {
    if (!value) value = std::move(found);
  };
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const Json config = read_json_object(model_dir, name);
    take(tokens.bos, token_text(config, "bos_token"));
    take(tokens.eos, token_text(config, "eos_token"));
    take(tokens.pad, token_text(config, "pad_token"));
    take(tokens.unk, token_text(config, "unk_token"));
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Json config = read_json_object(model_dir, name);
    take(tokens.bos_id, token_id(config, "bos_token_id"));
    take(tokens.eos_id, token_id(config, "eos_token_id"));
    take(tokens.pad_id, token_id(config, "pad_token_id"));
  }
  return tokens;
}

}  // namespace vime::text
