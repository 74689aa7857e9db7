// For builds without utf8proc (VIME_TOKENIZERS=OFF): ASCII, and a refusal for the rest.
#include <cstdio>

#include "base/error.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

char ascii(char32_t code) {
  if (code < 0x80) return static_cast<char>(code);
  char name[16];
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(code));
  throw Error(ErrorKind::refused, std::string("this build knows no Unicode data for ") + name,
              "configure with -DVIME_TOKENIZERS=ON (needs libpcre2-dev and libutf8proc-dev)");
}

bool within(char c, char first, char last) {
  return c >= first && c <= last;
}

}  // namespace

std::string normalized(std::string_view text, NormalForm) {
  for (const char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) ascii(character_at(text, static_cast<size_t>(&c - text.data())).code);
  }
  return std::string(text);
}

char32_t lower_case(char32_t code) {
  const char c = ascii(code);
  return within(c, 'A', 'Z') ? code + 32 : code;
}

char32_t upper_case(char32_t code) {
  const char c = ascii(code);
  return within(c, 'a', 'z') ? code - 32 : code;
}

char32_t title_case(char32_t code) {
  return upper_case(code);
}

bool is_letter(char32_t code) {
  const char c = ascii(code);
  return within(c, 'a', 'z') || within(c, 'A', 'Z');
}

bool is_number(char32_t code) {
  return within(ascii(code), '0', '9');
}

bool is_mark(char32_t code) {
  ascii(code);
  return false;
}

bool is_punctuation(char32_t code) {
  const char c = ascii(code);
  return std::string_view("!\"#%&'()*,-./:;?@[\\]_{}").find(c) != std::string_view::npos;
}

bool is_cased(char32_t code) {
  return is_letter(code);
}

bool is_printable(char32_t code) {
  return code >= 0x80 || (code >= 0x20 && code < 0x7f);
}

bool is_word_character(char32_t code) {
  return is_letter(code) || is_number(code) || code == '_';
}

}  // namespace vime::text
