#include "text/plain_tokenizers.hpp"

#include <unordered_map>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "text/byte_level.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

constexpr int64_t kFirstCharacter = 2;  // after pad and eos

void check_id(int64_t id, size_t place) {
  if (id >= 0) return;
  throw Error(ErrorKind::refused,
              "token " + std::to_string(place) + " is " + std::to_string(id) + ", expected an id from 0 on");
}

// A character for a message: printable ASCII and well-formed UTF-8 as they are, other bytes in hex.
std::string shown(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first >= 0x20 && first != 0x7f && character_length(character, 0) == character.size()) {
    return "\"" + std::string(character) + "\"";
  }
  return "byte 0x" + hex(first).substr(14);
}

constexpr const char* kPadToken = "<|pad|>";
constexpr const char* kEosToken = "<|eos|>";

Json added_token(int64_t id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// Hugging Face's files. model, pre_tokenizer, decoder: sections of tokenizer.json.
void write_hugging_face(const fs::path& model_dir, const Tokenizer& tokenizer, const Json& model,
                        const Json& pre_tokenizer, const Json& decoder) {
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {added_token(tokenizer.pad_id(), kPadToken), added_token(tokenizer.eos_id(), kEosToken)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", pre_tokenizer},
      {"post_processor", nullptr},
      {"decoder", decoder},
      {"model", model}};
  write_file_atomic(model_dir / "tokenizer.json", json.dump(2) + "\n");
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"pad_token", kPadToken},
                       {"eos_token", kEosToken},
                       {"clean_up_tokenization_spaces", false}};
  write_file_atomic(model_dir / "tokenizer_config.json", config.dump(2) + "\n");
}

// Aside, fsynced, renamed.
void write(const fs::path& model_dir, const Json& json) {
  write_file_atomic(model_dir / kPlainTokenizerFile, json.dump(2) + "\n");
}

}  // namespace

struct CharTokenizer::Table {
  std::string alphabet;
  std::vector<std::string> characters;
  std::unordered_map<std::string, int64_t> ids;
};

CharTokenizer::CharTokenizer(std::string_view alphabet) {
  auto table = std::make_unique<Table>();
  table->alphabet = alphabet;
  for (std::string_view character : split_characters(alphabet)) {
    if (character_length(character, 0) == 0) {
      throw Error(ErrorKind::refused, "character tokenizer: " + shown(character) + " in the alphabet is not UTF-8");
    }
    const auto id = kFirstCharacter + static_cast<int64_t>(table->characters.size());
    if (!table->ids.emplace(character, id).second) {
      throw Error(ErrorKind::refused, "character tokenizer: " + shown(character) + " comes twice in the alphabet");
    }
    table->characters.emplace_back(character);
  }
  if (table->characters.empty()) {
    throw Error(ErrorKind::refused, "character tokenizer: the alphabet is empty", "write char:<characters>");
  }
  table_ = std::move(table);
}

CharTokenizer::~CharTokenizer() = default;

int64_t CharTokenizer::vocab_size() const {
  return kFirstCharacter + static_cast<int64_t>(table_->characters.size());
}

std::vector<int64_t> CharTokenizer::encode_text(std::string_view text, bool) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for (std::string_view character : split_characters(text)) {
    const auto found = table_->ids.find(std::string(character));
    if (found == table_->ids.end()) {
      const std::string start = valid_utf8(text.substr(0, 60)) + (text.size() > 60 ? "..." : "");
      throw Error(ErrorKind::refused,
                  "character tokenizer: " + shown(character) + " at byte " +
                      std::to_string(character.data() - text.data()) + " of \"" + start +
                      "\" is not in the vocabulary \"" + table_->alphabet + "\"",
                  "set model.tokenizer to \"byte\", or to \"char:\" and all characters of the data");
    }
    ids.push_back(found->second);
  }
  return ids;
}

std::string CharTokenizer::decode_ids(std::span<const int64_t> ids, bool) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    check_id(ids[i], i);
    if (ids[i] >= kFirstCharacter && ids[i] < vocab_size())
      text += table_->characters[static_cast<size_t>(ids[i] - kFirstCharacter)];
  }
  return text;
}

void CharTokenizer::save(const fs::path& model_dir) const {
  write(model_dir, {{"type", "char"}, {"alphabet", table_->alphabet}, {"pad_id", pad_id()}, {"eos_id", eos_id()}});
  Json vocabulary = {{kPadToken, pad_id()}, {kEosToken, eos_id()}};
  for (const auto& [character, id] : table_->ids) vocabulary[character] = id;
  // What is no character of the alphabet is refused here; there it becomes padding.
  write_hugging_face(
      model_dir, *this, {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", kPadToken}},
      {{"type", "Split"}, {"pattern", {{"Regex", R"([\s\S])"}}}, {"behavior", "Isolated"}, {"invert", false}},
      {{"type", "Fuse"}});
}

std::vector<int64_t> ByteTokenizer::encode_text(std::string_view text, bool) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::decode_ids(std::span<const int64_t> ids, bool) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    check_id(ids[i], i);
    if (ids[i] < 256) bytes += static_cast<char>(static_cast<unsigned char>(ids[i]));
  }
  return valid_utf8(bytes);
}

void ByteTokenizer::save(const fs::path& model_dir) const {
  write(model_dir, {{"type", "byte"}, {"pad_id", pad_id()}, {"eos_id", eos_id()}});
  Json vocabulary = {{kPadToken, pad_id()}, {kEosToken, eos_id()}};
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_byte_level(std::string(1, static_cast<char>(byte)), character);
    vocabulary[character] = byte;
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  write_hugging_face(model_dir, *this,
                     {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", vocabulary},
                      {"merges", Json::array()}},
                     byte_level, byte_level);
}

std::shared_ptr<const Tokenizer> load_plain_tokenizer(const fs::path& model_dir) {
  const fs::path path = model_dir / kPlainTokenizerFile;
  const std::string where = path.string();
  const Json json = parse_json(read_file(path), where, ErrorKind::refused);
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t pad_id = 0;
  int64_t eos_id = 0;
  try {
    const std::string type = json_string(json, "type", where);
    pad_id = json_int(json, "pad_id", where);
    eos_id = json_int(json, "eos_id", where);
    if (type == "char") {
      tokenizer = std::make_shared<CharTokenizer>(json_string(json, "alphabet", where));
    } else if (type == "byte") {
      tokenizer = std::make_shared<ByteTokenizer>();
    } else {
      throw Error(ErrorKind::refused, "\"type\": expected \"char\" or \"byte\", found \"" + type + "\"");
    }
  } catch (const Error& e) {
    // The typed getters blame a process; here a file is at fault, and before anything was started.
    const bool named = e.message().rfind(where, 0) == 0;
    throw Error(ErrorKind::refused, named ? e.message() : where + ": " + e.message(), e.hint());
  }
  if (pad_id != tokenizer->pad_id() || eos_id != tokenizer->eos_id()) {
    throw Error(ErrorKind::refused, where + ": expected pad_id " + std::to_string(tokenizer->pad_id()) +
                                        " and eos_id " + std::to_string(tokenizer->eos_id()) + ", found " +
                                        std::to_string(pad_id) + " and " + std::to_string(eos_id));
  }
  return tokenizer;
}

}  // namespace vime::text
