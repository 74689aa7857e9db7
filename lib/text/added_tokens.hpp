// The "added_tokens" of tokenizer.json: tokens that are found in the text before the model sees it, special ones among
// them. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "text/normalizer.hpp"

namespace vime::text {

class Bpe;

struct AddedToken {
  std::string content;
  bool single_word = false;  // only between characters that are no word characters
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = true;    // looked for in the normalised text
  bool special = false;      // left out by decode
};

// Strings to find in a text: leftmost first, the longest of those that begin at one place.
class TokenTrie {
 public:
  void insert(std::string_view content, uint32_t id);  // the first of equal contents stays
  // The longest content that `text` has at `place`: its length (0: none) and its id.
  size_t longest(std::string_view text, size_t place, uint32_t& id) const;
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    std::map<unsigned char, size_t> next;
    std::optional<uint32_t> id;
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<bool> starts_ = std::vector<bool>(256, false);  // bytes that some content begins with
};

class AddedTokens {
 public:
  AddedTokens(const Json& list, const Bpe& model, const Normalizer* normalizer);

  // A part of a text: a token, or (none) text between tokens.
  struct Part {
    std::optional<uint32_t> id;
    size_t begin = 0;
    size_t end = 0;
  };
  std::vector<Part> split_raw(std::string_view text) const;         // at tokens that are not `normalized`
  std::vector<Part> split_normalized(std::string_view text) const;  // at those that are

  std::optional<uint32_t> id_of(const std::string& content) const;
  // What decode works with: for a `normalized` token its normalised content. nullptr for an id that is none.
  const std::string* decoded(uint32_t id) const;
  bool is_special(const std::string& content) const { return special_.count(content) > 0; }
  std::vector<uint32_t> special_ids() const;
  uint32_t id_limit() const;  // above every id

 private:
  void add(const AddedToken& token, const Bpe& model, const Normalizer* normalizer);
  std::vector<Part> split(std::string_view text, const TokenTrie& trie) const;

  std::map<uint32_t, AddedToken> tokens_;
  std::map<uint32_t, std::string> decoded_;
  std::map<std::string, uint32_t> ids_;
  std::set<std::string> special_;
  uint32_t next_id_ = 0;  // for a token that the model does not have
  TokenTrie raw_;
  TokenTrie normalized_;
};

}  // namespace vime::text
