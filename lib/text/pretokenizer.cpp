#include "text/pretokenizer.hpp"

#include <cctype>
#include <optional>

#include "text/byte_level.hpp"
#include "text/component_json.hpp"
#include "text/metaspace.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

constexpr const char* kSupported =
    "ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer, "
    "CharDelimiterSplit, FixedLength, Sequence";
// GPT-2's expression (openai/gpt-2, encoder.py), which ByteLevel applies by itself.
constexpr const char* kByteLevelExpression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Cuts every piece by what `find` says its parts are.
template <typename Find>
void cut(Pieces& pieces, SplitBehavior behavior, bool invert, Find find) {
  std::vector<Span> spans;
  spans.reserve(pieces.text.size() / 4 + 8);
  for (const Span& span : pieces.spans) append_pieces(find(pieces.piece(span)), behavior, invert, span.begin, spans);
  pieces.spans = std::move(spans);
}

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) expression_ = Expression::from_json({{"Regex", kByteLevelExpression}}, "ByteLevel");
  }

  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) prefix_spaces(pieces);
    if (expression_) {
      Expression::Finder finder(*expression_);
      cut(
          pieces, SplitBehavior::isolated, false, [&](std::string_view text) -> auto& { return finder.find(text); });
    }
    std::string mapped;
    mapped.reserve(pieces.text.size() * 3 / 2);
    pieces.starts_document = pieces.starts_document && !pieces.spans.empty() && pieces.spans[0].begin == 0;
    for (Span& span : pieces.spans) {
      const size_t begin = mapped.size();
      append_byte_level(pieces.piece(span), mapped);
      span = {begin, mapped.size()};
    }
    pieces.text = std::move(mapped);
  }

 private:
  static void prefix_spaces(Pieces& pieces) {
    std::string spaced;
    spaced.reserve(pieces.text.size() + pieces.spans.size());
    for (Span& span : pieces.spans) {
      const std::string_view piece = pieces.piece(span);
      const size_t begin = spaced.size();
      if (piece[0] != ' ') spaced += ' ';
      spaced += piece;
      span = {begin, spaced.size()};
    }
    pieces.text = std::move(spaced);
  }

  bool add_prefix_space_;
  std::optional<Expression> expression_;
};

class Split final : public PreTokenizer {
 public:
  Split(Expression pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override {
    Expression::Finder finder(pattern_);
    cut(
        pieces, behavior_, invert_, [&](std::string_view text) -> auto& { return finder.find(text); });
  }

 private:
  Expression pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Cuts at single characters that have a property.
class CharacterSplit final : public PreTokenizer {
 public:
  using Property = bool (*)(char32_t);
  CharacterSplit(Property property, SplitBehavior behavior) : property_(property), behavior_(behavior) {}
  CharacterSplit(char32_t delimiter, SplitBehavior behavior) : delimiter_(delimiter), behavior_(behavior) {}

  void apply(Pieces& pieces) const override {
    std::vector<Match> matches;
    cut(
        pieces, behavior_, false, [&](std::string_view text) -> auto& {
          matches.clear();
          size_t done = 0;
          for (size_t i = 0; i < text.size();) {
            const Character character = character_at(text, i);
            const size_t next = i + character.length;
            if (property_ ? property_(character.code) : character.code == delimiter_) {
              if (done < i) matches.push_back({done, i, false});
              matches.push_back({i, next, true});
              done = next;
            }
            i = next;
          }
          if (done < text.size()) matches.push_back({done, text.size(), false});
          return matches;
        });
  }

 private:
  Property property_ = nullptr;
  char32_t delimiter_ = 0;
  SplitBehavior behavior_;
};

// Runs of word characters and runs of other characters; white space goes.
class Whitespace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    std::vector<Match> matches;
    cut(
        pieces, SplitBehavior::removed, true, [&](std::string_view text) -> auto& {
          matches.clear();
          std::optional<bool> last;  // of the run so far: word characters?
          for (size_t i = 0; i < text.size();) {
            const Character character = character_at(text, i);
            const bool space = is_whitespace(character.code);
            const std::optional<bool> word = space ? std::nullopt : std::optional(is_word_character(character.code));
            if (word && word == last) {
              matches.back().end = i + character.length;
            } else {
              matches.push_back({i, i + character.length, !space});
            }
            last = word;
            i += character.length;
          }
          return matches;
        });
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}
  void apply(Pieces& pieces) const override {
    std::vector<Match> matches;
    cut(
        pieces, SplitBehavior::isolated, false, [&](std::string_view text) -> auto& {
          matches.clear();
          int64_t count = 0;
          for (size_t i = 0; i < text.size(); ++count) {
            const size_t next = i + character_at(text, i).length;
            if (count % length_ == 0) matches.push_back({i, next, true});
            matches.back().end = next;
            i = next;
          }
          return matches;
        });
  }

 private:
  int64_t length_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

bool is_any_punctuation(char32_t code) {
  return code < 0x80 ? std::ispunct(static_cast<int>(code)) != 0 : is_punctuation(code);
}

std::unique_ptr<const PreTokenizer> make_sequence(const Json& list, const std::string& where, int depth) {
  if (depth >= kMaxComponentDepth) refuse_component(where, "a Sequence this deep", "16 levels");
  std::vector<std::unique_ptr<const PreTokenizer>> parts;
  for (const Json& part : list) {
    auto made = make_pre_tokenizer(part, where + ".pretokenizers[" + std::to_string(parts.size()) + "]", depth + 1);
    if (made) parts.push_back(std::move(made));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

std::unique_ptr<const PreTokenizer> make_character_split(const std::string& type, const Json& component,
                                                         const std::string& where) {
  const auto behavior_or = [&](const char* absent) {
    const bool given = optional_member(component, "behavior") != nullptr;
    return split_behavior(given ? text_member(component, "behavior", where) : absent, where);
  };
  if (type == "WhitespaceSplit") return std::make_unique<CharacterSplit>(&is_whitespace, SplitBehavior::removed);
  if (type == "Punctuation") return std::make_unique<CharacterSplit>(&is_any_punctuation, behavior_or("Isolated"));
  if (type == "Digits") {
    const bool individual = flag_member(component, "individual_digits", false, where);
    return std::make_unique<CharacterSplit>(&is_number,
                                            individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
  }
  if (type == "CharDelimiterSplit") {
    const std::string delimiter = text_member(component, "delimiter", where);
    if (delimiter.empty() || character_length(delimiter, 0) != delimiter.size()) {
      refuse_component(where, "delimiter \"" + delimiter + "\"", "one character");
    }
    return std::make_unique<CharacterSplit>(character_at(delimiter, 0).code, SplitBehavior::removed);
  }
  std::vector<std::unique_ptr<const PreTokenizer>> bert;
  bert.push_back(std::make_unique<CharacterSplit>(&is_whitespace, SplitBehavior::removed));
  bert.push_back(std::make_unique<CharacterSplit>(&is_any_punctuation, SplitBehavior::isolated));
  return std::make_unique<Sequence>(std::move(bert));
}

}  // namespace

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Json& component, const std::string& where, int depth) {
  if (component.is_null()) return nullptr;
  const std::string type = component_type(component, where);
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(flag_member(component, "add_prefix_space", true, where),
                                       flag_member(component, "use_regex", true, where));
  }
  if (type == "Split") {
    const Json* pattern = optional_member(component, "pattern");
    return std::make_unique<Split>(Expression::from_json(pattern ? *pattern : Json(), where + ".pattern"),
                                   split_behavior(text_member(component, "behavior", where), where),
                                   flag_member(component, "invert", false, where));
  }
  if (type == "Sequence") return make_sequence(list_member(component, "pretokenizers", where), where, depth);
  if (type == "Metaspace") return make_metaspace_pre_tokenizer(component, where);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "FixedLength") {
    const int64_t length = count_member(component, "length", 5, where);
    if (length == 0) refuse_component(where, "length 0", "1 and more");
    return std::make_unique<FixedLength>(length);
  }
  for (const char* name : {"WhitespaceSplit", "Punctuation", "Digits", "CharDelimiterSplit", "BertPreTokenizer"}) {
    if (type == name) return make_character_split(type, component, where);
  }
  refuse_component(where, "pre-tokenizer \"" + type + "\"", kSupported);
}

}  // namespace vime::text
