// Text to token ids and back. Trainer, engine and loop use the same tokenizer: it travels as `vime_tokenizer.json` in
// the model directory. Tokenizers are immutable: any thread may use one at the same time; nothing blocks except load
// and save.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Adds no special tokens. Error{refused} names what cannot be encoded and where it stands.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  // Always well-formed UTF-8; special tokens (pad, eos) give no text. Error{refused} on an id outside [0, vocab_size).
  virtual std::string decode(std::span<const int64_t> ids) const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t pad_id() const = 0;
  virtual int64_t eos_id() const = 0;
  virtual Json to_json() const = 0;
};

// One token per listed character. Ids: 0 pad, 1 eos, 2... the characters in their order.
class CharTokenizer final : public Tokenizer {
 public:
  // Error{refused} when empty, not UTF-8 or a character comes twice.
  explicit CharTokenizer(std::string_view alphabet);
  ~CharTokenizer() override;
  std::vector<int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int64_t> ids) const override;
  int64_t vocab_size() const override;
  int64_t pad_id() const override { return 0; }
  int64_t eos_id() const override { return 1; }
  Json to_json() const override;

 private:
  struct Table;
  std::unique_ptr<const Table> table_;
};

// One token per byte: ids 0...255 are the bytes, 256 is pad, 257 is eos. Encodes anything, invalid UTF-8 included.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int64_t> ids) const override;
  int64_t vocab_size() const override { return 258; }
  int64_t pad_id() const override { return 256; }
  int64_t eos_id() const override { return 257; }
  Json to_json() const override;
};

// Writes <model_dir>/vime_tokenizer.json (aside, fsynced, renamed).
void save_tokenizer(const Tokenizer& tokenizer, const fs::path& model_dir);
// Reads it back. Error{refused} when the file is missing or says what this build does not know.
std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& model_dir);

// The tokenizer of an experiment. `spec` is model.tokenizer: "byte", "char:<characters>", or "auto", which is the first
// of: the one that the model directory carries (empty path: none), the one made for a built-in data set, bytes.
// Error{refused} for an unknown spec, and under "auto" for a directory whose tokenizer vime cannot read.
std::shared_ptr<const Tokenizer> tokenizer_for(const std::string& spec, const std::string& prompt_data,
                                               const fs::path& model_dir);

}  // namespace vime::data
