#include "data/json_object.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/json.hpp"
#include "text/utf8.hpp"

namespace vime::data {
namespace {

// Offset of the first byte that belongs to no well-formed character, or npos.
size_t first_ill_formed(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t length = text::character_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

size_t column_of(std::string_view text, size_t at) {
  size_t column = 1;
  for (size_t i = 0; i < at && i < text.size(); ++i) column += (static_cast<unsigned char>(text[i]) & 0xC0u) != 0x80u;
  return column;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
  }
  add(0x80 | (code & 0x3F));
}

// The four hex digits at `at`, or -1.
int32_t hex4(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int32_t code = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const int digit = hex_value(text[i]);
    if (digit < 0) return -1;
    code = code << 4 | digit;
  }
  return code;
}

bool is_high_surrogate(int32_t code) {
  return code >= 0xD800 && code < 0xDC00;
}
bool is_low_surrogate(int32_t code) {
  return code >= 0xDC00 && code < 0xE000;
}

// Recursive descent; `at_` is where the next byte is looked at. A false return means that fault_ says what is wrong.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool read(std::vector<JsonMember>& members) {
    skip_blanks();
    if (peek() != '{') return expected("a JSON object");
    if (!object(&members, 1)) return false;
    skip_blanks();
    if (at_ == text_.size()) return true;
    const bool old_line_end = text_[at_ - 1] == '\r';
    return expected(old_line_end ? "the end of the line (a lone CR does not end it; use LF)" : "the end of the line");
  }

  const std::string& fault() const { return fault_; }

 private:
  // 0 at the end of the text; a NUL in the text is wrong wherever this is asked.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  bool fail(const std::string& what) {
    fault_ = "not JSON: " + what + " (column " + std::to_string(column_of(text_, at_)) + ")";
    return false;
  }

  bool expected(const std::string& what) {
    if (at_ >= text_.size()) return fail("expected " + what + ", found the end of the line");
    const size_t length = std::max<size_t>(1, text::character_length(text_, at_));
    return fail("expected " + what + ", found " + Json(std::string(text_.substr(at_, length))).dump());
  }

  bool value(int depth) {
    const char c = peek();
    if (c == '"') return string();
    if (c == '{') return object(nullptr, depth + 1);
    if (c == '[') return list(depth + 1);
    if (c == '-' || is_digit(c)) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return true;
    }
    for (const std::string_view word : {"NaN", "Infinity"}) {
      if (text_.substr(at_, word.size()) == word) return fail("expected a value, found " + std::string(word));
    }
    return expected("a value");
  }

  bool object(std::vector<JsonMember>* members, int depth) {
    if (depth > kMaxJsonDepth) return too_deep();
    std::unordered_set<std::string> keys;
    ++at_;
    skip_blanks();
    if (peek() == '}') return ++at_, true;
    for (;;) {
      if (peek() != '"') return expected("a key in quotes");
      const size_t key_at = at_;
      if (!string()) return false;
      std::string key = json_text(text_.substr(key_at, at_ - key_at));
      if (!keys.insert(key).second) {
        at_ = key_at;
        fault_ = "duplicate key " + Json(key.substr(0, 60)).dump(-1, ' ', false, Json::error_handler_t::ignore) +
                 " (column " + std::to_string(column_of(text_, at_)) + ")";
        return false;
      }
      skip_blanks();
      if (peek() != ':') return expected("\":\"");
      ++at_;
      skip_blanks();
      const size_t value_at = at_;
      if (!value(depth)) return false;
      if (members) members->push_back({std::move(key), text_.substr(value_at, at_ - value_at)});
      skip_blanks();
      if (peek() == '}') return ++at_, true;
      if (peek() != ',') return expected("\",\" or \"}\"");
      ++at_;
      skip_blanks();
    }
  }

  bool list(int depth) {
    if (depth > kMaxJsonDepth) return too_deep();
    ++at_;
    skip_blanks();
    if (peek() == ']') return ++at_, true;
    for (;;) {
      if (!value(depth)) return false;
      skip_blanks();
      if (peek() == ']') return ++at_, true;
      if (peek() != ',') return expected("\",\" or \"]\"");
      ++at_;
      skip_blanks();
    }
  }

  bool too_deep() {
    fault_ = "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels";
    return false;
  }

  bool string() {
    ++at_;
    for (; at_ < text_.size(); ++at_) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') return ++at_, true;
      if (c < 0x20) return fail("a control character in a text; expected an escape such as \\n");
      if (c == '\\' && !escape()) return false;
    }
    return fail("a quote is not closed");
  }

  // Ends on the escape's last byte.
  bool escape() {
    ++at_;
    if (peek() == 'u') {
      const int32_t code = hex4(text_, at_ + 1);
      if (code < 0) return fail("expected four hex digits after \\u");
      if (is_low_surrogate(code)) return fail("half of a surrogate pair");
      at_ += 4;
      if (!is_high_surrogate(code)) return true;
      const bool second = text_.substr(at_ + 1, 2) == "\\u" && is_low_surrogate(hex4(text_, at_ + 3));
      if (!second) return fail("half of a surrogate pair");
      at_ += 6;
      return true;
    }
    if (at_ < text_.size() && std::strchr("\"\\/bfnrt", text_[at_]) != nullptr && text_[at_] != '\0') return true;
    return expected("an escape (\\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u)");
  }

  bool digits() {
    const size_t from = at_;
    while (is_digit(peek())) ++at_;
    return at_ > from;
  }

  bool number() {
    const size_t from = at_;
    if (peek() == '-') ++at_;
    const bool zero = peek() == '0';
    if (zero) {
      ++at_;
    } else if (!digits()) {
      return expected("a digit");
    }
    if (zero && is_digit(peek())) return fail("a number with a leading zero");
    bool exact = true;  // no exponent: only a very long one leaves the range
    if (peek() == '.') {
      ++at_;
      if (!digits()) return expected("a digit");
    }
    if (peek() == 'e' || peek() == 'E') {
      exact = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return expected("a digit");
    }
    if (exact && at_ - from < 300) return true;
    // from_chars does not say whether a number is too large or too small, which is fine.
    if (std::isfinite(std::strtod(std::string(text_.substr(from, at_ - from)).c_str(), nullptr))) return true;
    at_ = from;
    return fail("a number beyond the range of a double");
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string fault_;
};

}  // namespace

std::string read_json_object(std::string_view text, std::vector<JsonMember>& members) {
  members.clear();
  const size_t ill_formed = first_ill_formed(text);
  if (ill_formed != std::string_view::npos) {
    return "not UTF-8 (column " + std::to_string(column_of(text, ill_formed)) + ")";
  }
  Scanner scanner(text);
  return scanner.read(members) ? "" : scanner.fault();
}

std::string json_text(std::string_view value) {
  const std::string_view inner = value.substr(1, value.size() - 2);
  const size_t first = inner.find('\\');
  if (first == std::string_view::npos) return std::string(inner);
  std::string text(inner.substr(0, first));
  text.reserve(inner.size());
  for (size_t at = first; at < inner.size(); ++at) {
    if (inner[at] != '\\') {
      text += inner[at];
      continue;
    }
    const char kind = inner[++at];
    if (kind != 'u') {
      constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
      const size_t which = kFrom.find(kind);
      text += which == std::string_view::npos ? kind : kTo[which];
      continue;
    }
    int32_t code = hex4(inner, at + 1);
    at += 4;
    if (is_high_surrogate(code)) {
      code = 0x10000 + ((code - 0xD800) << 10) + (hex4(inner, at + 3) - 0xDC00);
      at += 6;
    }
    append_utf8(text, static_cast<uint32_t>(code));
  }
  return text;
}

std::string describe_json(std::string_view value) {
  constexpr size_t kShown = 40;
  if (value.front() == '{') return "an object";
  if (value.front() == '[') return "a list";
  const std::string more = value.size() > kShown ? "..." : "";
  if (value.front() == '"') {
    const std::string shown = json_text(value).substr(0, kShown);
    return "the text " + Json(shown).dump(-1, ' ', false, Json::error_handler_t::ignore) + more;
  }
  const bool word = value == "null" || value == "true" || value == "false";
  return (word ? "" : "the number ") + std::string(value.substr(0, kShown)) + more;
}

}  // namespace vime::data
