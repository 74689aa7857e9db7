#include "text/added_tokens.hpp"

#include <algorithm>

#include "text/bpe.hpp"
#include "text/component_json.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

// Where the white space that `text` ends with begins.
size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
    if (!is_whitespace(character_at(text, begin).code)) break;
    end = begin;
  }
  return end;
}

size_t leading_space(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const Character character = character_at(text, end);
    if (!is_whitespace(character.code)) break;
    end += character.length;
  }
  return end;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return is_word_character(character_at(text, begin).code);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_character(character_at(text, 0).code);
}

AddedToken read_token(const Json& entry, const std::string& where) {
  AddedToken token;
  token.content = text_member(entry, "content", where);
  token.special = flag_member(entry, "special", false, where);
  token.single_word = flag_member(entry, "single_word", false, where);
  token.lstrip = flag_member(entry, "lstrip", false, where);
  token.rstrip = flag_member(entry, "rstrip", false, where);
  token.normalized = flag_member(entry, "normalized", !token.special, where);
  return token;
}

}  // namespace

void TokenTrie::insert(std::string_view content, uint32_t id) {
  if (content.empty()) return;
  starts_[static_cast<uint8_t>(content[0])] = true;
  size_t node = 0;
  for (char c : content) {
    const auto [found, is_new] = nodes_[node].next.emplace(static_cast<uint8_t>(c), nodes_.size());
    const size_t child = found->second;
    if (is_new) nodes_.emplace_back();
    node = child;
  }
  if (!nodes_[node].id) nodes_[node].id = id;
}

size_t TokenTrie::longest(std::string_view text, size_t place, uint32_t& id) const {
  if (!starts_[static_cast<uint8_t>(text[place])]) return 0;
  size_t length = 0;
  size_t node = 0;
  for (size_t i = place; i < text.size(); ++i) {
    const auto found = nodes_[node].next.find(static_cast<uint8_t>(text[i]));
    if (found == nodes_[node].next.end()) break;
    node = found->second;
    if (nodes_[node].id) {
      id = *nodes_[node].id;
      length = i + 1 - place;
    }
  }
  return length;
}

AddedTokens::AddedTokens(const Json& list, const Bpe& model, const Normalizer* normalizer)
    : next_id_(static_cast<uint32_t>(model.token_count())) {
  size_t number = 0;
  for (const Json& entry : list) {
    add(read_token(entry, "added_tokens[" + std::to_string(number) + "]"), model, normalizer);
    ++number;
  }
  for (const auto& [id, token] : tokens_) (token.normalized ? normalized_ : raw_).insert(decoded_.at(id), id);
}

// The id in the file is not asked: a token that the model has keeps the model's id, others are numbered on behind it.
// The `tokenizers` package reads the list in the same way.
void AddedTokens::add(const AddedToken& token, const Bpe& model, const Normalizer* normalizer) {
  if (token.content.empty()) return;
  std::optional<uint32_t> id = id_of(token.content);
  if (!id) id = model.id_of(token.content);
  if (!id) id = next_id_++;
  ids_[token.content] = *id;
  tokens_[*id] = token;
  std::string& decoded = decoded_[*id] = token.content;
  if (token.normalized && normalizer != nullptr) normalizer->apply(decoded);
  if (token.special) special_.insert(token.content);
}

std::optional<uint32_t> AddedTokens::id_of(const std::string& content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* AddedTokens::decoded(uint32_t id) const {
  const auto found = decoded_.find(id);
  return found == decoded_.end() ? nullptr : &found->second;
}

std::vector<uint32_t> AddedTokens::special_ids() const {
  std::vector<uint32_t> ids;
  for (const auto& [id, content] : decoded_) {
    if (is_special(content)) ids.push_back(id);
  }
  return ids;
}

uint32_t AddedTokens::id_limit() const {
  return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1;
}

std::vector<AddedTokens::Part> AddedTokens::split_raw(std::string_view text) const {
  return split(text, raw_);
}

std::vector<AddedTokens::Part> AddedTokens::split_normalized(std::string_view text) const {
  return split(text, normalized_);
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, const TokenTrie& trie) const {
  std::vector<Part> parts;
  size_t done = 0;  // end of the last token
  for (size_t place = 0; place < text.size() && !trie.empty();) {
    uint32_t id = 0;
    const size_t length = trie.longest(text, place, id);
    if (length == 0) {
      ++place;
      continue;
    }
    size_t begin = place;
    size_t end = place + length;
    place = end;
    const AddedToken& token = tokens_.at(id);
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) parts.push_back({std::nullopt, done, begin});
    parts.push_back({id, begin, end});
    done = end;
  }
  if (done != text.size()) parts.push_back({std::nullopt, done, text.size()});
  return parts;
}

}  // namespace vime::text
