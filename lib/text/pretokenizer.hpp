// The "pre_tokenizer" of tokenizer.json: cuts normalised text into the pieces that the model encodes each on its own.
// Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "text/split.hpp"

namespace vime::text {

// The pieces of a text, as places in it. A pre-tokenizer either cuts them further or writes a new text.
struct Pieces {
  std::string text;
  std::vector<Span> spans;      // none is empty
  bool starts_document = true;  // whether text[0] is the beginning of what was to be encoded

  std::string_view piece(const Span& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer, CharDelimiterSplit,
// FixedLength, Sequence; null gives nullptr. Error{refused} names any other.
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Json& component, const std::string& where, int depth = 0);

}  // namespace vime::text
