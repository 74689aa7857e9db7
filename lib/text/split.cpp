#include "text/split.hpp"

#include <algorithm>

#include "text/component_json.hpp"

namespace vime::text {

Expression Expression::from_json(const Json& pattern, const std::string& where) {
  Expression expression;
  if (const Json* literal = optional_member(pattern, "String"); literal != nullptr && literal->is_string()) {
    expression.literal_ = literal->get<std::string>();
  } else if (const Json* regex = optional_member(pattern, "Regex"); regex != nullptr && regex->is_string()) {
    expression.regex_.emplace(regex->get<std::string>());
  } else {
    refuse_component(where, "this kind of pattern", "{\"String\": \"...\"} and {\"Regex\": \"...\"}");
  }
  return expression;
}

Expression::Finder::Finder(const Expression& expression) : expression_(expression) {
  if (expression.regex_) search_.emplace(*expression.regex_);
}

bool Expression::Finder::next(std::string_view text, size_t from, size_t& begin, size_t& end) {
  if (search_) return search_->next(begin, end);
  if (expression_.literal_.empty()) return false;
  begin = text.find(expression_.literal_, from);
  if (begin == std::string_view::npos) return false;
  end = begin + expression_.literal_.size();
  return true;
}

const std::vector<Match>& Expression::Finder::find(std::string_view text) {
  matches_.clear();
  if (search_) search_->start(text);
  size_t done = 0;
  for (size_t begin = 0, end = 0; next(text, done, begin, end); done = end) {
    if (begin > done) matches_.push_back({done, begin, false});
    matches_.push_back({begin, end, true});
  }
  if (done < text.size()) matches_.push_back({done, text.size(), false});
  return matches_;
}

std::string Expression::Finder::replaced(std::string_view text, std::string_view content) {
  std::string result;
  result.reserve(text.size());
  for (const Match& match : find(text)) {
    result += match.found ? content : text.substr(match.begin, match.end - match.begin);
  }
  return result;
}

SplitBehavior split_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  refuse_component(where, "behavior \"" + name + "\"",
                   "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

namespace {

// A match joins the piece before it, unless that one is (or ends in) a match as well.
void merge_backward(const std::vector<Match>& matches, bool invert, std::vector<Span>& pieces) {
  bool previous = false;
  bool first = true;
  for (const Match& match : matches) {
    const bool found = match.found != invert;
    if (found && !previous && !first) {
      pieces.back().end = match.end;
    } else {
      pieces.push_back({match.begin, match.end});
    }
    previous = found;
    first = false;
  }
}

void merge_forward(const std::vector<Match>& matches, bool invert, std::vector<Span>& pieces) {
  const auto start = static_cast<std::ptrdiff_t>(pieces.size());
  bool previous = false;
  bool first = true;
  for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
    const bool found = match->found != invert;
    if (found && !previous && !first) {
      pieces.back().begin = match->begin;
    } else {
      pieces.push_back({match->begin, match->end});
    }
    previous = found;
    first = false;
  }
  std::reverse(pieces.begin() + start, pieces.end());
}

void merge_runs(const std::vector<Match>& matches, bool invert, std::vector<Span>& pieces) {
  bool previous = false;
  bool first = true;
  for (const Match& match : matches) {
    const bool found = match.found != invert;
    if (found == previous && !first) {
      pieces.back().end = match.end;
    } else {
      pieces.push_back({match.begin, match.end});
    }
    previous = found;
    first = false;
  }
}

}  // namespace

void append_pieces(const std::vector<Match>& matches, SplitBehavior behavior, bool invert, size_t offset,
                   std::vector<Span>& pieces) {
  const size_t start = pieces.size();
  switch (behavior) {
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      for (const Match& match : matches) {
        if (behavior == SplitBehavior::isolated || match.found == invert) pieces.push_back({match.begin, match.end});
      }
      break;
    case SplitBehavior::merged_with_previous:
      merge_backward(matches, invert, pieces);
      break;
    case SplitBehavior::merged_with_next:
      merge_forward(matches, invert, pieces);
      break;
    case SplitBehavior::contiguous:
      merge_runs(matches, invert, pieces);
      break;
  }
  size_t kept = start;
  for (size_t i = start; i < pieces.size(); ++i) {
    if (pieces[i].begin < pieces[i].end) pieces[kept++] = {pieces[i].begin + offset, pieces[i].end + offset};
  }
  pieces.resize(kept);
}

}  // namespace vime::text
