#include "text/tokenizer_json.hpp"

#include <nlohmann/json.hpp>

#include "text/component_json.hpp"

namespace vime::text {
namespace {

// vime::Json looks keys up one after the other, which a vocabulary of 150 thousand would make quadratic.
using SortedJson = nlohmann::json;

SortedJson parse(const std::string& text) {
  try {
    SortedJson json = SortedJson::parse(text);
    if (json.is_object()) return json;
  } catch (const SortedJson::exception&) {
  }
  throw Error(ErrorKind::refused, "not a JSON object");
}

void read_vocabulary(const SortedJson& model, BpeOptions& options) {
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end() || !vocabulary->is_object()) {
    throw Error(ErrorKind::refused, "model.vocab: expected an object");
  }
  options.vocabulary.reserve(vocabulary->size());
  for (const auto& [token, id] : vocabulary->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) {
      throw Error(ErrorKind::refused, "model.vocab: the id of \"" + token + "\": expected a count");
    }
    options.vocabulary.emplace_back(token, id.get<uint32_t>());
  }
}

// Each merge is ["a", "b"] or, in older files, "a b".
void read_merges(const SortedJson& model, BpeOptions& options) {
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) throw Error(ErrorKind::refused, "model.merges: expected a list");
  options.merges.reserve(merges->size());
  for (const SortedJson& merge : *merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      options.merges.emplace_back(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
      continue;
    }
    if (merge.is_string()) {
      const std::string& line = merge.get_ref<const std::string&>();
      if (line.rfind("#version", 0) == 0) continue;
      const size_t space = line.find(' ');
      if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
        options.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
        continue;
      }
    }
    throw Error(ErrorKind::refused, "model.merges[" + std::to_string(options.merges.size()) + "]: expected two tokens");
  }
}

BpeOptions read_model(SortedJson& whole) {
  const auto model = whole.find("model");
  if (model == whole.end() || !model->is_object()) throw Error(ErrorKind::refused, "model: expected an object");
  const auto type = model->find("type");
  const bool is_bpe = type == model->end() ? model->contains("merges") : *type == "BPE";
  if (!is_bpe) {
    refuse_component("model", type == model->end() ? "a model without a type" : "type " + type->dump(), "BPE");
  }
  BpeOptions options;
  read_vocabulary(*model, options);
  read_merges(*model, options);
  model->erase("vocab");
  model->erase("merges");
  const Json rest(*model);
  const Json* dropout = optional_member(rest, "dropout");
  if (dropout != nullptr && *dropout != 0) refuse_component("model.dropout", dropout->dump(), "null");
  if (optional_member(rest, "unk_token") != nullptr) options.unknown_token = text_member(rest, "unk_token", "model");
  if (optional_member(rest, "continuing_subword_prefix") != nullptr) {
    options.continuing_prefix = text_member(rest, "continuing_subword_prefix", "model");
  }
  if (optional_member(rest, "end_of_word_suffix") != nullptr) {
    options.end_suffix = text_member(rest, "end_of_word_suffix", "model");
  }
  options.fuse_unknown = flag_member(rest, "fuse_unk", false, "model");
  options.byte_fallback = flag_member(rest, "byte_fallback", false, "model");
  options.ignore_merges = flag_member(rest, "ignore_merges", false, "model");
  return options;
}

}  // namespace

TokenizerJson parse_tokenizer_json(const std::string& text) {
  SortedJson whole = parse(text);
  TokenizerJson json;
  json.model = read_model(whole);
  whole.erase("model");
  const Json rest(whole);
  const auto take = [&](const char* key, Json& part) {
    if (const Json* found = optional_member(rest, key)) part = *found;
  };
  take("normalizer", json.normalizer);
  take("pre_tokenizer", json.pre_tokenizer);
  take("post_processor", json.post_processor);
  take("decoder", json.decoder);
  take("added_tokens", json.added_tokens);
  if (!json.added_tokens.is_array()) throw Error(ErrorKind::refused, "added_tokens: expected a list");
  return json;
}

}  // namespace vime::text
