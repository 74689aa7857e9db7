#include "text/jinja_lexer.hpp"

#include <algorithm>
#include <cctype>

#include "text/jinja_value.hpp"
#include "text/python_text.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {
namespace {

constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// One line ending, and none at the very end.
std::string with_plain_newlines(std::string_view source) {
  std::string plain;
  plain.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      plain += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      plain += source[i];
    }
  }
  if (!plain.empty() && plain.back() == '\n') plain.pop_back();
  return plain;
}

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)) {}

  std::vector<Token> run() {
    while (place_ < source_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string::npos) {
        add_data(source_.substr(place_));
        place_ = source_.size();
        break;
      }
      read_tag(tag);
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { fail("line " + std::to_string(line_) + ": " + what); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void add_data(const std::string& text) {
    if (!text.empty()) add(TokenKind::data, text);
  }

  // Moves on and counts lines.
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(place_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    line_start_ = to > place_ ? source_[to - 1] == '\n' : line_start_;
    place_ = to;
  }

  size_t next_tag() const {
    for (size_t at = place_; (at = source_.find('{', at)) != std::string::npos; ++at) {
      const char kind = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (kind == '{' || kind == '%' || kind == '#') return at;
    }
    return std::string::npos;
  }

  char at(size_t place) const { return place < source_.size() ? source_[place] : '\0'; }

  // The text before a tag, without what the tag takes away: `-` all white space, and a block or comment that stands
  // first on its line the blanks before it, unless it has a `+`.
  std::string text_before(size_t tag, char sign, bool is_output) const {
    std::string text = source_.substr(place_, tag - place_);
    if (sign == '-') return strip(text, std::nullopt, Side::right);
    if (sign == '+' || is_output) return text;
    const size_t line_break = text.rfind('\n');
    const size_t begin = line_break == std::string::npos ? 0 : line_break + 1;
    if (begin == 0 && !line_start_) return text;
    if (strip(text.substr(begin), std::nullopt, Side::both).empty()) text.resize(begin);
    return text;
  }

  void read_tag(size_t tag) {
    const char kind = source_[tag + 1];
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
    add_data(text_before(tag, sign, kind == '{'));
    advance(tag);
    advance(tag + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '{' ? TokenKind::begin_output : TokenKind::begin_block, "");
    read_expression(kind == '{');
  }

  void skip_space() {
    size_t end = place_;
    while (end < source_.size()) {
      const Character character = character_at(source_, end);
      if (!is_python_space(character.code)) break;
      end += character.length;
    }
    advance(end);
  }

  // Behind a closing sign: "-" takes all white space, a block or comment one line ending unless it has a "+".
  void close(size_t length, char sign, bool is_output) {
    advance(place_ + length);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && !is_output && at(place_) == '\n') {
      advance(place_ + 1);
    }
  }

  void read_comment() {
    const size_t end = source_.find("#}", place_);
    if (end == std::string::npos) refuse("a comment without \"#}\"");
    const char sign = end > place_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
    advance(end);
    close(2, sign, false);
  }

  size_t after_space(size_t place) const {
    while (place < source_.size() && is_python_space(character_at(source_, place).code)) {
      place += character_at(source_, place).length;
    }
    return place;
  }

  // The text up to {% endraw %}, when the block is {% raw %}.
  bool read_raw() {
    size_t name = after_space(place_);
    if (source_.compare(name, 3, "raw") != 0) return false;
    const size_t end = after_space(name + 3);
    const bool stripped = source_.compare(end, 3, "-%}") == 0;
    if (!stripped && source_.compare(end, 2, "%}") != 0) return false;
    advance(end);
    advance(place_ + (stripped ? 3 : 2));
    if (stripped) skip_space();
    for (size_t tag = place_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
      name = after_space(tag + 2 + (sign != '\0' ? 1 : 0));
      if (source_.compare(name, 6, "endraw") != 0) continue;
      const size_t closing = after_space(name + 6);
      const char last = at(closing) == '-' || at(closing) == '+' ? at(closing) : '\0';
      if (source_.compare(closing + (last != '\0' ? 1 : 0), 2, "%}") != 0) continue;
      add_data(text_before(tag, sign, false));
      advance(closing);
      close(last != '\0' ? 3 : 2, last, false);
      return true;
    }
    refuse("{% raw %} without {% endraw %}");
  }

  // The tokens of one tag, with its end.
  void read_expression(bool is_output) {
    std::string open;  // brackets not closed yet
    const std::string_view end = is_output ? "}}" : "%}";
    while (true) {
      skip_space();
      if (place_ >= source_.size()) refuse(is_output ? "{{ without }}" : "{% without %}");
      const char sign = at(place_) == '-' || (at(place_) == '+' && !is_output) ? at(place_) : '\0';
      if (open.empty() && source_.compare(place_ + (sign != '\0' ? 1 : 0), 2, end) == 0) {
        add(is_output ? TokenKind::end_output : TokenKind::end_block, "");
        close(sign != '\0' ? 3 : 2, sign, is_output);
        return;
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = source_[place_];
    if (c == '\'' || c == '"') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) {
      size_t end = place_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      add(TokenKind::name, source_.substr(place_, end - place_));
      return advance(end);
    }
    for (std::string_view sign : kSigns) {
      if (source_.compare(place_, sign.size(), sign) != 0) continue;
      balance(sign[0], open);
      add(TokenKind::sign, std::string(sign));
      return advance(place_ + sign.size());
    }
    refuse(std::string("unexpected character \"") + c + "\"");
  }

  void balance(char sign, std::string& open) const {
    if (sign == '(' || sign == '[' || sign == '{') {
      if (open.size() > 200) refuse("brackets are nested deeper than 200");
      open += sign == '(' ? ')' : sign == '[' ? ']' : '}';
    } else if (sign == ')' || sign == ']' || sign == '}') {
      if (open.empty() || open.back() != sign) refuse(std::string("unexpected \"") + sign + "\"");
      open.pop_back();
    }
  }

  void read_string(char quote) {
    size_t end = place_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("a string without its closing quote");
    add(TokenKind::string, unescaped(std::string_view(source_).substr(place_ + 1, end - place_ - 1)));
    advance(end + 1);
  }

  // Integers may be written in base 2, 8 or 16; all digits may have "_" between them.
  void read_number() {
    size_t end = place_;
    const char base = static_cast<char>(std::tolower(at(place_ + 1)));
    const bool prefixed = source_[place_] == '0' && (base == 'x' || base == 'o' || base == 'b');
    if (prefixed) end += 2;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_' ||
                                      (prefixed && std::isxdigit(static_cast<unsigned char>(source_[end]))))) {
        ++end;
      }
    };
    digits();
    bool real = false;
    if (!prefixed && at(end) == '.' && is_digit(at(end + 1)) && !(place_ > 0 && source_[place_ - 1] == '.')) {
      real = true;
      ++end;
      digits();
    }
    const size_t power = end + (at(end + 1) == '-' || at(end + 1) == '+' ? 2 : 1);
    if (!prefixed && (at(end) == 'e' || at(end) == 'E') && is_digit(at(power))) {
      real = true;
      end = power;
      digits();
    }
    std::string text = source_.substr(place_, end - place_);
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, text);
    advance(end);
  }

  // Python's escapes; an unknown one stays as it is written.
  std::string unescaped(std::string_view written) const {
    std::string text;
    for (size_t i = 0; i < written.size(); ++i) {
      if (written[i] != '\\' || i + 1 >= written.size()) {
        text += written[i];
        continue;
      }
      const char c = written[++i];
      static constexpr std::string_view kNamed = "\\'\"abfnrtv";
      const size_t named = kNamed.find(c);
      if (named != std::string_view::npos) {
        text += "\\'\"\a\b\f\n\r\t\v"[named];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += append_code(written.substr(i + 1, c == 'x'   ? 2
                                               : c == 'u' ? 4
                                                          : 8),
                         c == 'x'   ? 2
                         : c == 'u' ? 4
                                    : 8,
                         16, text);
      } else if (c >= '0' && c <= '7') {
        size_t count = 1;
        while (count < 3 && i + count < written.size() && written[i + count] >= '0' && written[i + count] <= '7')
          ++count;
        append_code(written.substr(i, count), count, 8, text);
        i += count - 1;
      } else if (c == 'N') {
        refuse("\"\\N{...}\" in a string is not supported");
      } else if (c != '\n') {
        text += {'\\', c};
      }
    }
    return text;
  }

  size_t append_code(std::string_view digits, size_t count, int base, std::string& text) const {
    const std::string number(digits);
    if (number.size() < count || number.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      refuse("an escape with too few digits");
    }
    const unsigned long code = std::stoul(number, nullptr, base);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) refuse("an escape that is no character");
    append_character(text, static_cast<char32_t>(code));
    return count;
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t place_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // whether `place_` is the beginning of a line
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(valid_utf8(source)).run();
}

}  // namespace vime::text::jinja
