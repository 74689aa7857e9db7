#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "base/error.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool between(char32_t code, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t found = category(code);
  return found >= first && found <= last;
}

int options_of(NormalForm form) {
  switch (form) {
    case NormalForm::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::nfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(options_of(form)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (length < 0) throw Error(ErrorKind::exhausted, std::string("normalise text: ") + utf8proc_errmsg(length));
  return std::string(reinterpret_cast<const char*>(made), static_cast<size_t>(length));
}

char32_t lower_case(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

char32_t upper_case(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t title_case(char32_t code) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
}

bool is_letter(char32_t code) {
  return between(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

bool is_number(char32_t code) {
  return between(code, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_mark(char32_t code) {
  return between(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_punctuation(char32_t code) {
  return between(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_cased(char32_t code) {
  return between(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT);
}

bool is_printable(char32_t code) {
  return code == ' ' || between(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_SO);
}

bool is_word_character(char32_t code) {
  const utf8proc_category_t found = category(code);
  if (found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_NL) return true;  // L*, M*, Nd, Nl
  if (found == UTF8PROC_CATEGORY_PC || code == 0x200c || code == 0x200d) return true;
  // Other_Alphabetic outside L, M and N: circled and squared letters.
  return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
         (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

}  // namespace vime::text
