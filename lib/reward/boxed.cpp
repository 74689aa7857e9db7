#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "reward/latex.hpp"
#include "reward/number.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {
namespace {

constexpr int kDeepest = 16;
constexpr size_t kMostElements = 64;
constexpr size_t kLongest = 4096;

bool same(std::string_view answer, std::string_view label, int depth);

// The length of the opening or closing bracket at `at`; braces that only group are brackets too.
size_t bracket_length(std::string_view text, size_t at, bool opening) {
  if (text.substr(at, 2) == (opening ? "\\{" : "\\}")) return 2;
  const std::string_view kinds = opening ? "([{" : ")]}";
  return at < text.size() && kinds.find(text[at]) != std::string_view::npos ? 1 : 0;
}

// Cut at the separator where no bracket is open.
std::vector<std::string_view> cut(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t opening = bracket_length(text, at, true), closing = bracket_length(text, at, false);
    depth += opening > 0 ? 1 : closing > 0 ? -1 : 0;
    if (depth == 0 && text.substr(at, separator.size()) == separator) {
      parts.push_back(text.substr(begin, at - begin));
      at += separator.size();
      begin = at;
      continue;
    }
    at += std::max<size_t>({opening, closing, 1});
  }
  parts.push_back(text.substr(begin));
  return parts;
}

struct Bracketed {
  std::string open, close;  // "" for a bare list
  std::vector<std::string_view> elements;
  bool ordered() const { return open == "(" || open == "["; }
};

// "(1,2]" -> brackets and elements; a bare text of several elements has no brackets.
Bracketed take_apart(std::string_view text) {
  Bracketed result;
  const size_t opening = bracket_length(text, 0, true);
  const size_t close_at = text.size() >= 2 && text.substr(text.size() - 2) == "\\}" ? text.size() - 2 : text.size() - 1;
  if (opening > 0 && close_at >= opening && bracket_length(text, close_at, false) > 0) {
    const std::string_view inner = text.substr(opening, close_at - opening);
    int depth = 0;
    bool whole = true;  // the first bracket closes at the very end: not "(1)(2)"
    for (size_t at = 0; at < inner.size() && whole;) {
      const size_t open = bracket_length(inner, at, true), shut = bracket_length(inner, at, false);
      depth += open > 0 ? 1 : shut > 0 ? -1 : 0;
      whole = depth >= 0;
      at += std::max<size_t>({open, shut, 1});
    }
    if (whole && depth == 0) {
      result.open = text.substr(0, opening);
      result.close = text.substr(close_at);
      result.elements = cut(inner, ",");
      return result;
    }
  }
  result.elements = cut(text, ",");
  return result;
}

bool same_elements(const Bracketed& answer, const Bracketed& label, int depth) {
  const size_t count = label.elements.size();
  if (answer.open != label.open || answer.close != label.close || answer.elements.size() != count) return false;
  if (count > kMostElements) return answer.elements == label.elements;
  if (label.ordered()) {
    return std::equal(label.elements.begin(), label.elements.end(), answer.elements.begin(),
                      [&](auto wanted, auto given) { return same(given, wanted, depth + 1); });
  }
  std::vector<bool> used(count, false);
  return std::all_of(answer.elements.begin(), answer.elements.end(), [&](std::string_view given) {
    for (size_t i = 0; i < count; ++i) {
      if (used[i] || !same(given, label.elements[i], depth + 1)) continue;
      used[i] = true;
      return true;
    }
    return false;
  });
}

bool is_whole(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Whether the response is an answer and not the task: operators only as the label uses them. A sign at the start of the
// text, of a brace or of a bracket is no operator.
bool is_evaluated(std::string_view answer, std::string_view label) {
  const auto uses = [](std::string_view text, char sign) {
    for (size_t at = text.find(sign); at != std::string_view::npos; at = text.find(sign, at + 1)) {
      const bool is_sign = (sign == '-' || sign == '+') && (at == 0 || text[at - 1] == '{' || text[at - 1] == '(');
      if (!is_sign) return true;
    }
    return false;
  };
  for (const char sign : {'+', '-', '*', '^'}) {
    if (uses(answer, sign) && !uses(label, sign)) return false;
  }
  if (!is_whole(label)) return true;
  const std::string_view figures = answer.substr(!answer.empty() && (answer[0] == '-' || answer[0] == '+') ? 1 : 0);
  return figures.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::string plain_integer(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const size_t leading = text.find_first_not_of('0');
  if (leading == std::string_view::npos) return "0";
  return (negative ? "-" : "") + std::string(text.substr(leading));
}

bool same_number(std::string_view answer, std::string_view label) {
  if (is_whole(answer) && is_whole(label)) return plain_integer(answer) == plain_integer(label);
  if (!is_evaluated(answer, label)) return false;
  const std::optional<double> given = latex_value(answer), wanted = latex_value(label);
  return given && wanted && close(*given, *wanted);
}

bool same(std::string_view answer, std::string_view label, int depth) {
  if (answer == label) return true;
  if (answer.empty() || label.empty() || depth > kDeepest) return false;
  if (answer.size() > kLongest || label.size() > kLongest) return false;
  if (same_number(answer, label)) return true;
  const std::vector<std::string_view> given = cut(answer, "\\cup"), wanted = cut(label, "\\cup");
  if (wanted.size() > 1 || given.size() > 1) {
    return given.size() == wanted.size() &&
           std::equal(given.begin(), given.end(), wanted.begin(),
                      [&](auto left, auto right) { return same(left, right, depth + 1); });
  }
  const Bracketed taken = take_apart(answer), right = take_apart(label);
  const bool is_list = right.elements.size() > 1 || !right.open.empty();
  return is_list && same_elements(taken, right, depth);
}

// "\text{yes}" -> "yes", "5\text{cm}" -> "5cm".
std::string without_text(std::string_view normal) {
  constexpr std::string_view kText = "\\text{";
  std::string out;
  for (size_t at = 0; at < normal.size();) {
    if (normal.substr(at, kText.size()) != kText) {
      out += normal[at++];
      continue;
    }
    const size_t end = std::min(normal.find('}', at), normal.size());
    out += normal.substr(at + kText.size(), end - at - kText.size());
    at = std::min(end + 1, normal.size());
  }
  return out;
}

// Where a unit begins: a \text{} behind a number, with nothing after it but a power. Nothing when there is none.
std::optional<size_t> unit_begin(std::string_view normal) {
  const size_t at = normal.rfind("\\text{");
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const char before = normal[at - 1];
  if (!std::isdigit(static_cast<unsigned char>(before)) && before != '}' && before != ')') return std::nullopt;
  const size_t close = normal.find('}', at);
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view rest = normal.substr(close + 1);
  if (!rest.empty() && (rest[0] != '^' || rest.size() > 4)) return std::nullopt;
  return at;
}

}  // namespace

bool same_latex(std::string_view answer, std::string_view label) {
  const std::optional<size_t> answer_unit = unit_begin(answer), label_unit = unit_begin(label);
  if (answer_unit.has_value() != label_unit.has_value()) {
    answer = answer.substr(0, answer_unit.value_or(answer.size()));
    label = label.substr(0, label_unit.value_or(label.size()));
  }
  return same(without_text(answer), without_text(label), 0);
}

std::optional<double> boxed(std::string_view response, std::string_view label) {
  const std::string wanted = normal_latex(last_boxed(label).value_or(label));
  if (wanted.empty()) return std::nullopt;
  const std::optional<std::string_view> answer = last_boxed(response);
  if (!answer) return 0.0;
  return same_latex(normal_latex(*answer), wanted) ? 1.0 : 0.0;
}

}  // namespace vime::reward
