// Cutting text at the matches of a pattern, as the pre-tokenizers and `Replace` of tokenizer.json do it. Expressions
// are immutable: any thread may use one, each with its own Finder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "text/regex.hpp"

namespace vime::text {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// A part of a text that did match, or one between two matches. The parts of a text cover it.
struct Match {
  size_t begin = 0;
  size_t end = 0;
  bool found = false;
};

// A plain string or a regular expression: {"String": "..."} or {"Regex": "..."}.
class Expression {
 public:
  static Expression from_json(const Json& pattern, const std::string& where);

  class Finder {
   public:
    explicit Finder(const Expression& expression);
    // The parts of `text`, in order; valid until the next call.
    const std::vector<Match>& find(std::string_view text);
    // `text` with `content` for every match.
    std::string replaced(std::string_view text, std::string_view content);

   private:
    bool next(std::string_view text, size_t from, size_t& begin, size_t& end);

    const Expression& expression_;
    std::optional<Regex::Search> search_;
    std::vector<Match> matches_;
  };

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitBehavior split_behavior(const std::string& name, const std::string& where);

// Appends the pieces that `matches` make, each moved by `offset`. `invert` swaps matches and gaps. Empty pieces are
// left out.
void append_pieces(const std::vector<Match>& matches, SplitBehavior behavior, bool invert, size_t offset,
                   std::vector<Span>& pieces);

}  // namespace vime::text
