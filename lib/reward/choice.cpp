#include <cctype>
#include <string>

#include "base/strings.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {
namespace {

bool is_word_byte(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  const unsigned char c = static_cast<unsigned char>(text[at]);
  return std::isalnum(c) || c == '_' || c == '\'' || c >= 0x80;
}

bool is_choice(char c) {
  return c >= 'A' && c <= 'J';
}

// "A" and "I" are also words: "A good choice", "I think". "A is right" is a choice all the same.
bool is_english_word(std::string_view text, size_t at) {
  if (text[at] != 'A' && text[at] != 'I') return false;
  if (at + 1 < text.size() && text[at + 1] == '\'') return true;
  if (at + 2 >= text.size() || text[at + 1] != ' ') return false;
  const std::string_view rest = text.substr(at + 2);
  for (const std::string_view verb : {"is ", "and ", "or "}) {
    if (rest.substr(0, verb.size()) == verb) return false;
  }
  return std::islower(static_cast<unsigned char>(rest.front()));
}

// The one letter that the text names, alone or in brackets; nothing when it names none or several.
std::optional<char> only_letter(std::string_view text) {
  std::optional<char> letter;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool bracketed = at > 0 && text[at - 1] == '(' && at + 1 < text.size() && text[at + 1] == ')';
    const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(text[at])));
    if (!is_choice(bracketed ? upper : text[at])) continue;
    if ((at > 0 && is_word_byte(text, at - 1)) || is_word_byte(text, at + 1)) {
      if (!is_english_word(text, at)) continue;
    }
    if (!bracketed && is_english_word(text, at)) continue;
    if (letter && *letter != upper) return std::nullopt;
    letter = upper;
  }
  return letter;
}

// Whether another letter is named right behind the one that ends before `at`: "A, B", "A or B", "A B", "(A)(B)".
bool names_another(std::string_view text, size_t at, char letter) {
  for (;;) {
    while (at < text.size() && std::string_view(" \t,/&;().[]").find(text[at]) != std::string_view::npos) ++at;
    const std::string_view rest = text.substr(at);
    if (rest.substr(0, 3) == "or " || rest.substr(0, 4) == "and ") {
      at += rest[0] == 'o' ? 3 : 4;
      continue;
    }
    return at < text.size() && is_choice(text[at]) && text[at] != letter && !is_word_byte(text, at + 1) &&
           !is_english_word(text, at);
  }
}

// The letter that comes at once, behind words that only lead to it: ": (B) because A is wrong". Small letters count
// where the line ends with them.
std::optional<char> direct_letter(std::string_view line) {
  constexpr std::string_view kLeading[] = {"is", "option", "choice",  "should", "would",
                                           "be", "the",    "correct", "letter"};
  size_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    while (at < line.size() && std::string_view(" \t:*(\"'$[{`=").find(line[at]) != std::string_view::npos) ++at;
    for (const std::string_view word : kLeading) {
      if (line.substr(at, word.size()) != word || is_word_byte(line, at + word.size())) continue;
      at += word.size();
      moved = true;
    }
  }
  if (at >= line.size() || is_word_byte(line, at + 1)) return std::nullopt;
  const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(line[at])));
  const bool ends_line = line.find_first_not_of(" .)*\"'$]}`", at + 1) == std::string_view::npos;
  if (!is_choice(ends_line ? upper : line[at]) || is_english_word(line, at)) return std::nullopt;
  if (names_another(line, at + 1, upper)) return std::nullopt;
  return upper;
}

std::string_view first_line(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n:*");
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin);
  return text.substr(0, text.find('\n'));
}

std::string_view last_line(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  const size_t newline = text.rfind('\n');
  return newline == std::string_view::npos ? text : text.substr(newline + 1);
}

// What follows the last "answer", in any case.
std::optional<std::string_view> after_answer(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t at = lower.rfind("answer");
  if (at == std::string::npos) return std::nullopt;
  return text.substr(at + 6);
}

// "\text{(B)}" -> "(B)"
std::string without_text_command(std::string_view content) {
  std::string plain(content);
  for (const std::string command : {"\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{"}) {
    const size_t at = plain.find(command);
    if (at != std::string::npos) plain.replace(at, command.size(), "{");
  }
  return plain;
}

std::optional<char> stated_letter(std::string_view response) {
  if (const auto content = last_boxed(response)) {
    const std::string plain = without_text_command(*content);
    const std::optional<char> letter = only_letter(plain);
    if (letter) return letter;
    const std::string bare = trim(plain);
    if (bare.size() == 1) return only_letter("(" + bare + ")");  // a small letter alone in the box
    return std::nullopt;
  }
  if (const auto rest = after_answer(response)) {
    const std::string_view line = first_line(*rest);
    if (const std::optional<char> letter = direct_letter(line)) return letter;
    if (const std::optional<char> letter = only_letter(line)) return letter;
  }
  return only_letter(last_line(response));
}

}  // namespace

std::optional<double> choice(std::string_view response, std::string_view label) {
  std::string wanted;
  for (const char c : label) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      wanted += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  if (wanted.size() != 1 || !is_choice(wanted[0])) return std::nullopt;
  const std::optional<char> letter = stated_letter(response);
  return letter && *letter == wanted[0] ? 1.0 : 0.0;
}

}  // namespace vime::reward
