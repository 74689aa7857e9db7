#include "text/bpe_tokenizer.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "text/added_tokens.hpp"
#include "text/bpe.hpp"
#include "text/decoder.hpp"
#include "text/normalizer.hpp"
#include "text/plain_tokenizers.hpp"
#include "text/post_processor.hpp"
#include "text/pretokenizer.hpp"
#include "text/tokenizer_files.hpp"
#include "text/tokenizer_json.hpp"
#include "text/utf8.hpp"

namespace vime::text {

struct BpeTokenizer::Parts {
  Bpe model;
  std::unique_ptr<const Normalizer> normalizer;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  PostProcessor post_processor;
  std::unique_ptr<const Decoder> decoder;
  AddedTokens added;
  fs::path model_dir;
  int64_t bos = kNoToken;
  int64_t eos = kNoToken;
  int64_t pad = kNoToken;

  explicit Parts(TokenizerJson json)
      : model(std::move(json.model)),
        normalizer(make_normalizer(json.normalizer, "normalizer")),
        pre_tokenizer(make_pre_tokenizer(json.pre_tokenizer, "pre_tokenizer")),
        post_processor(json.post_processor, "post_processor"),
        decoder(make_decoder(json.decoder, "decoder")),
        added(json.added_tokens, model, normalizer.get()) {}

  int64_t id_of(const std::optional<std::string>& token, const std::optional<int64_t>& id) const {
    if (token) {
      if (const auto found = added.id_of(*token)) return *found;
      if (const auto found = model.id_of(*token)) return *found;
    }
    return id.value_or(kNoToken);
  }

  const std::string* token_of(int64_t id) const {
    if (id > UINT32_MAX) return nullptr;
    if (const std::string* token = added.decoded(static_cast<uint32_t>(id))) return token;
    return model.token_of(static_cast<uint32_t>(id));
  }

  // Appends the ids of normalised text that holds no added token.
  void encode_piece(std::string_view text, bool starts_document, Bpe::Scratch& scratch, Pieces& pieces,
                    std::vector<int64_t>& ids) const {
    if (text.empty()) return;
    pieces.text = text;
    pieces.spans.assign(1, {0, text.size()});
    pieces.starts_document = starts_document;
    if (pre_tokenizer) pre_tokenizer->apply(pieces);
    for (const Span& span : pieces.spans) model.encode(pieces.piece(span), scratch, ids);
  }
};

BpeTokenizer::BpeTokenizer(const std::string& json, const SpecialTokens& tokens, fs::path model_dir) {
  auto parts = std::make_unique<Parts>(parse_tokenizer_json(json));
  parts->model_dir = model_dir.empty() ? model_dir : fs::absolute(model_dir);
  parts->bos = parts->id_of(tokens.bos, tokens.bos_id);
  parts->eos = parts->id_of(tokens.eos, tokens.eos_id);
  parts->pad = parts->id_of(tokens.pad, tokens.pad_id);
  if (parts->pad == kNoToken) parts->pad = parts->eos;
  parts_ = std::move(parts);
}

BpeTokenizer::~BpeTokenizer() = default;

int64_t BpeTokenizer::vocab_size() const {
  return std::max(parts_->model.id_limit(), parts_->added.id_limit());
}

int64_t BpeTokenizer::pad_id() const {
  return parts_->pad;
}

int64_t BpeTokenizer::eos_id() const {
  return parts_->eos;
}

int64_t BpeTokenizer::bos_id() const {
  return parts_->bos;
}

std::vector<int64_t> BpeTokenizer::special_ids() const {
  const std::vector<uint32_t> ids = parts_->added.special_ids();
  return {ids.begin(), ids.end()};
}

void BpeTokenizer::save(const fs::path& model_dir) const {
  const std::vector<std::string> copied = copy_tokenizer_files(parts_->model_dir, model_dir);
  std::error_code ignored;  // a plain tokenizer left there would be read instead
  if (!copied.empty()) fs::remove(model_dir / kPlainTokenizerFile, ignored);
}

std::vector<int64_t> BpeTokenizer::encode_text(std::string_view text, bool add_special_tokens) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = valid_utf8(text);
    text = repaired;
  }
  std::vector<int64_t> ids;
  Bpe::Scratch scratch;
  Pieces pieces;
  std::string plain;
  for (const AddedTokens::Part& raw : parts_->added.split_raw(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    plain = text.substr(raw.begin, raw.end - raw.begin);
    if (parts_->normalizer) parts_->normalizer->apply(plain);
    for (const AddedTokens::Part& part : parts_->added.split_normalized(plain)) {
      if (part.id) {
        ids.push_back(*part.id);
        continue;
      }
      const std::string_view piece = std::string_view(plain).substr(part.begin, part.end - part.begin);
      parts_->encode_piece(piece, raw.begin == 0 && part.begin == 0, scratch, pieces, ids);
    }
  }
  return add_special_tokens ? parts_->post_processor.with_special_tokens(std::move(ids)) : ids;
}

std::string BpeTokenizer::decode_ids(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) {
      throw Error(ErrorKind::refused,
                  "token " + std::to_string(i) + " is " + std::to_string(ids[i]) + ", expected 0 or more");
    }
    const std::string* token = parts_->token_of(ids[i]);
    if (token != nullptr && !(skip_special_tokens && parts_->added.is_special(*token))) tokens.push_back(*token);
  }
  if (parts_->decoder) parts_->decoder->apply(tokens);
  std::string text;
  for (const std::string& token : tokens) {
    if (!parts_->decoder && !text.empty()) text += ' ';
    text += token;
  }
  return text;
}

std::shared_ptr<const Tokenizer> load_bpe_tokenizer(const fs::path& model_dir) {
  const fs::path path = model_dir / kTokenizerFile;
  const std::string json = read_file(path);
  const SpecialTokens tokens = read_special_tokens(model_dir);
  try {
    return std::make_shared<BpeTokenizer>(json, tokens, model_dir);
  } catch (const Error& error) {
    throw error.within(path.string());
  }
}

}  // namespace vime::text
