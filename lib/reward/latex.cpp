#include "reward/latex.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

namespace vime::reward {
namespace {

constexpr size_t kLongest = 4096;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The command at `at` ("\frac", or a backslash and one sign).
std::string_view command_at(std::string_view text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
  return text.substr(at, std::max(end, std::min(at + 2, text.size())) - at);
}

constexpr std::string_view kDropped[] = {"\\left",  "\\right", "\\big", "\\Big",  "\\bigl",   "\\bigr",        "\\Bigl",
                                         "\\Bigr",  "\\!",     "\\,",   "\\;",    "\\:",      "\\ ",           "\\quad",
                                         "\\qquad", "\\%",     "\\$",   "\\circ", "\\degree", "\\displaystyle"};
constexpr std::string_view kTextCommands[] = {"\\text", "\\mathrm", "\\mathbf", "\\textbf",
                                              "\\mbox", "\\textit", "\\mathit", "\\operatorname"};
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"\\dfrac", "\\frac"}, {"\\tfrac", "\\frac"}, {"\\cfrac", "\\frac"}, {"\\cdot", "*"},
    {"\\times", "*"},      {"\\leq", "\\le"},     {"\\geq", "\\ge"},     {"\\neq", "\\ne"},
    {"\\lbrace", "\\{"},   {"\\rbrace", "\\}"},   {"\\lbrack", "["},     {"\\rbrack", "]"}};

// Commands renamed or dropped, spaces and signs without meaning taken out.
std::string plain_commands(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c != '\\') {
      const bool degree = text.substr(at, 2) == "°";
      const bool minus = text.substr(at, 3) == "−";
      if (minus) out += '-';
      if (!degree && !minus && c != '$' && c != '%' && c != '~' && !std::isspace(static_cast<unsigned char>(c)))
        out += c;
      at += degree ? 2 : minus ? 3 : 1;
      continue;
    }
    const std::string_view command = command_at(text, at);
    at += command.size();
    if (std::find(std::begin(kDropped), std::end(kDropped), command) != std::end(kDropped)) continue;
    if (std::find(std::begin(kTextCommands), std::end(kTextCommands), command) != std::end(kTextCommands)) {
      out += "\\text";
      continue;
    }
    const auto renamed =
        std::find_if(std::begin(kRenamed), std::end(kRenamed), [&](const auto& pair) { return pair.first == command; });
    out += renamed == std::end(kRenamed) ? command : renamed->second;
  }
  return out;
}

void erase_all(std::string& text, std::string_view what) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(what, at);
    out.append(text, at, found == std::string::npos ? std::string::npos : found - at);
    if (found == std::string::npos) break;
    at = found + what.size();
  }
  text = std::move(out);
}

// "\frac12" -> "\frac{1}{2}", "\sqrt3" -> "\sqrt{3}": arguments without braces are one figure or letter.
std::string with_braces(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\') {
      out += text[at++];
      continue;
    }
    const std::string command(command_at(text, at));
    at += command.size();
    out += command;
    for (int missing = command == "\\frac" ? 2 : command == "\\sqrt" ? 1 : 0; missing > 0 && at < text.size();) {
      if (!std::isalnum(static_cast<unsigned char>(text[at]))) break;
      out += "{" + std::string(1, text[at++]) + "}";
      --missing;
    }
  }
  return out;
}

// "2.500" -> "2.5", "3.0" -> "3", ".5" -> "0.5", "1,000,000" -> "1000000".
std::string plain_decimals(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool is_point = text[at] == '.' && at + 1 < text.size() && is_digit(text[at + 1]);
    if (!is_digit(text[at]) && !is_point) {
      out += text[at++];
      continue;
    }
    size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    std::string number = end == at ? "0" : text.substr(at, end - at);
    if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
      size_t stop = end + 1;
      while (stop < text.size() && is_digit(text[stop])) ++stop;
      number += text.substr(end, stop - end);
      number.erase(number.find_last_not_of('0') + 1);
      if (number.back() == '.') number.pop_back();
      end = stop;
    }
    out += number;
    at = end;
  }
  return out;
}

// A whole text "1,000" or "-12,345.6": the commas are separators and no list.
std::string without_thousands(const std::string& text) {
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  size_t figures = 0;
  bool grouped = false;
  for (; at < text.size() && text[at] != '.'; ++at) {
    if (is_digit(text[at])) {
      ++figures;
      if (figures > 3) return text;
    } else if (text[at] == ',' && figures > 0 && (figures == 3 || !grouped)) {
      grouped = true;
      figures = 0;
    } else {
      return text;
    }
  }
  if (!grouped || figures != 3) return text;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (!is_digit(text[i])) return text;
  }
  std::string out = text;
  out.erase(std::remove(out.begin(), out.end(), ','), out.end());
  return out;
}

// "x=5" -> "5", "x\in[1,2]" -> "[1,2]"; one letter only.
void drop_variable(std::string& text) {
  if (text.size() < 3 || !std::isalpha(static_cast<unsigned char>(text[0]))) return;
  if (text[1] == '=' && text.find('=', 2) == std::string::npos) text.erase(0, 2);
  if (text.size() > 4 && text.substr(1, 3) == "\\in" && !std::isalpha(static_cast<unsigned char>(text[4])))
    text.erase(0, 4);
}

}  // namespace

std::string normal_latex(std::string_view text) {
  if (text.size() > kLongest) return std::string(text);
  std::string out = plain_commands(text);
  erase_all(out, "^{}");  // what is left of ^{\circ}
  erase_all(out, "{,}");
  if (!out.empty() && out.back() == '^') out.pop_back();  // of ^\circ
  while (!out.empty() && out.back() == '.') out.pop_back();
  out = with_braces(out);
  drop_variable(out);
  return plain_decimals(without_thousands(out));
}

}  // namespace vime::reward
