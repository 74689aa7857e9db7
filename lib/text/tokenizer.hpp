// Text to token ids and back. Trainer, engine and loop use the same tokenizer: it travels in the model directory, as
// `vime_tokenizer.json` or as the Hugging Face files it came from. Tokenizers are immutable: any thread may use one at
// the same time; nothing blocks except load and save.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.hpp"

namespace vime::text {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `add_special_tokens` puts in what the model wants around a text (its template's begin and end tokens), if anything.
  // Error{refused} names what cannot be encoded and where it stands.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = false) const {
    return encode_text(text, add_special_tokens);
  }
  // Always well-formed UTF-8. Special tokens (pad, eos) give no text unless they are asked for, and neither do ids
  // without a token: models have more rows than their tokenizers have tokens. Error{refused} on a negative id.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const {
    return decode_ids(ids, skip_special_tokens);
  }

  static constexpr int64_t kNoToken = -1;
  virtual int64_t vocab_size() const = 0;  // above every id
  virtual int64_t pad_id() const = 0;      // the eos token where there is no pad token
  virtual int64_t eos_id() const = 0;      // kNoToken where the files name none
  virtual int64_t bos_id() const { return kNoToken; }
  virtual std::vector<int64_t> special_ids() const = 0;  // those that decode leaves out, ascending
  // Writes it into a model directory, so that load_tokenizer gives the same one.
  virtual void save(const fs::path& model_dir) const = 0;

 private:
  virtual std::vector<int64_t> encode_text(std::string_view text, bool add_special_tokens) const = 0;
  virtual std::string decode_ids(std::span<const int64_t> ids, bool skip_special_tokens) const = 0;
};

inline void save_tokenizer(const Tokenizer& tokenizer, const fs::path& model_dir) {
  tokenizer.save(model_dir);
}

// The tokenizer of a model directory: `vime_tokenizer.json`, else `tokenizer.json` and the files beside it.
// Error{refused} when there is neither, or one says what this build does not know.
std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& model_dir);
// Whether a directory holds a tokenizer of any kind, readable or not.
bool has_tokenizer(const fs::path& model_dir);

// The tokenizer of an experiment. `spec` is model.tokenizer: "byte", "char:<characters>", a directory, or "auto", which
// is the first of: the one that the model directory carries (empty path: none), one token for each character of
// `alphabet` (empty: none; a built-in data set's characters), bytes. Error{refused} for an unknown spec, and for a
// directory whose tokenizer vime cannot read.
std::shared_ptr<const Tokenizer> tokenizer_for(const std::string& spec, const std::string& alphabet,
                                               const fs::path& model_dir);

}  // namespace vime::text
