// The tokenizer of a Hugging Face tokenizer.json whose model is BPE: added tokens, normaliser, pre-tokenizer, merges,
// template and decoder, as the `tokenizers` package (0.23) runs them. Immutable; any thread.
#pragma once

#include <memory>

#include "text/tokenizer.hpp"

namespace vime::text {

struct SpecialTokens;

class BpeTokenizer final : public Tokenizer {
 public:
  // `json` is the content of tokenizer.json. Truncation and padding set there are not applied. Error{refused} names a
  // part that is wrong or not supported, and what is.
  BpeTokenizer(const std::string& json, const SpecialTokens& tokens, fs::path model_dir);
  ~BpeTokenizer() override;

  int64_t vocab_size() const override;
  int64_t pad_id() const override;
  int64_t eos_id() const override;
  int64_t bos_id() const override;
  std::vector<int64_t> special_ids() const override;
  // Copies the files of the directory it was read from.
  void save(const fs::path& model_dir) const override;

 private:
  // Bytes that are not UTF-8 count as U+FFFD, as valid_utf8 gives them.
  std::vector<int64_t> encode_text(std::string_view text, bool add_special_tokens) const override;
  // An id without a token gives no text: models have more rows than their tokenizers have tokens.
  std::string decode_ids(std::span<const int64_t> ids, bool skip_special_tokens) const override;

  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

// Reads <model_dir>/tokenizer.json and the special tokens named beside it.
std::shared_ptr<const Tokenizer> load_bpe_tokenizer(const fs::path& model_dir);

}  // namespace vime::text
