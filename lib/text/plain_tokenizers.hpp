// Tokenizers without a learned vocabulary: one token per character or per byte. Immutable; any thread.
// save() writes vime_tokenizer.json, and the same as Hugging Face's tokenizer.json and tokenizer_config.json, so that
// transformers and vLLM can use the model folder; of the three, vime reads its own.
#pragma once

#include <memory>

#include "base/json.hpp"
#include "text/tokenizer.hpp"

namespace vime::text {

constexpr const char* kPlainTokenizerFile = "vime_tokenizer.json";

// One token per listed character. Ids: 0 pad, 1 eos, 2... the characters in their order.
class CharTokenizer final : public Tokenizer {
 public:
  // Error{refused} when empty, not UTF-8 or a character comes twice.
  explicit CharTokenizer(std::string_view alphabet);
  ~CharTokenizer() override;
  int64_t vocab_size() const override;
  int64_t pad_id() const override { return 0; }
  int64_t eos_id() const override { return 1; }
  std::vector<int64_t> special_ids() const override { return {0, 1}; }
  void save(const fs::path& model_dir) const override;

 private:
  std::vector<int64_t> encode_text(std::string_view text, bool add_special_tokens) const override;
  std::string decode_ids(std::span<const int64_t> ids, bool skip_special_tokens) const override;

  struct Table;
  std::unique_ptr<const Table> table_;
};

// One token per byte: ids 0...255 are the bytes, 256 is pad, 257 is eos. Encodes anything, invalid UTF-8 included.
class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 258; }
  int64_t pad_id() const override { return 256; }
  int64_t eos_id() const override { return 257; }
  std::vector<int64_t> special_ids() const override { return {256, 257}; }
  void save(const fs::path& model_dir) const override;

 private:
  std::vector<int64_t> encode_text(std::string_view text, bool add_special_tokens) const override;
  std::string decode_ids(std::span<const int64_t> ids, bool skip_special_tokens) const override;
};

// Reads <model_dir>/vime_tokenizer.json. Error{refused} when it is missing or says what this build does not know.
std::shared_ptr<const Tokenizer> load_plain_tokenizer(const fs::path& model_dir);

}  // namespace vime::text
