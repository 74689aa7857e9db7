#include "text/python_text.hpp"

#include <algorithm>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {
namespace {

// The characters whose capital form is more than one (Unicode's SpecialCasing.txt); Greek letters with iota follow.
struct Expansion {
  char32_t small;
  const char* capital;
  const char* title;
};
constexpr Expansion kExpansions[] = {
    {0xdf, "SS", "Ss"},
    {0x149, "\u02bcN", "\u02bcN"},
    {0x1f0, "J\u030c", "J\u030c"},
    {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x3b0, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x587, "\u0535\u0552", "\u0535\u0582"},
    {0x1e96, "H\u0331", "H\u0331"},
    {0x1e97, "T\u0308", "T\u0308"},
    {0x1e98, "W\u030a", "W\u030a"},
    {0x1e99, "Y\u030a", "Y\u030a"},
    {0x1e9a, "A\u02be", "A\u02be"},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
};

const Expansion* expansion_of(char32_t code) {
  const auto found = std::find_if(std::begin(kExpansions), std::end(kExpansions),
                                  [&](const Expansion& known) { return known.small == code; });
  return found == std::end(kExpansions) ? nullptr : found;
}

void append_upper(char32_t code, std::string& text) {
  if (const Expansion* expansion = code < 0x80 ? nullptr : expansion_of(code)) {
    text += expansion->capital;
  } else {
    append_character(text, upper_case(code));
  }
}

void append_title(char32_t code, std::string& text) {
  if (const Expansion* expansion = code < 0x80 ? nullptr : expansion_of(code)) {
    text += expansion->title;
  } else {
    append_character(text, title_case(code));
  }
}

// A capital sigma that ends a word has a small form of its own.
bool is_final_sigma(const std::u32string& codes, size_t place) {
  const bool before = place > 0 && is_letter(codes[place - 1]);
  const bool after = place + 1 < codes.size() && is_letter(codes[place + 1]);
  return before && !after;
}

std::u32string codes_of(std::string_view text) {
  std::u32string codes;
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    codes += character.code;
    i += character.length;
  }
  return codes;
}

void append_lower(const std::u32string& codes, size_t place, std::string& text) {
  const char32_t code = codes[place];
  if (code == 0x3a3) {
    append_character(text, is_final_sigma(codes, place) ? 0x3c2 : 0x3c3);
    return;
  }
  append_character(text, lower_case(code));
  if (code == 0x130) append_character(text, 0x307);
}

size_t previous_character(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

std::vector<std::string> split_at_space(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string> parts;
  if (from_right) {
    std::string_view rest = text;
    while (true) {
      const std::string trimmed = strip(rest, std::nullopt, Side::right);
      rest = rest.substr(0, trimmed.size());
      if (rest.empty()) break;
      size_t begin = rest.size();
      while (begin > 0 && !is_python_space(character_at(rest, previous_character(rest, begin)).code)) {
        begin = previous_character(rest, begin);
      }
      if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) begin = 0;
      parts.emplace_back(rest.substr(begin));
      rest = rest.substr(0, begin);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t place = 0;
  while (true) {
    while (place < text.size() && is_python_space(character_at(text, place).code)) {
      place += character_at(text, place).length;
    }
    if (place >= text.size()) return parts;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.emplace_back(text.substr(place));
      return parts;
    }
    size_t end = place;
    while (end < text.size() && !is_python_space(character_at(text, end).code)) end += character_at(text, end).length;
    parts.emplace_back(text.substr(place, end - place));
    place = end;
  }
}

}  // namespace

bool is_python_space(char32_t code) {
  return is_whitespace(code) || (code >= 0x1c && code <= 0x1f);
}

std::string strip(std::string_view text, const std::optional<std::string>& characters, Side side) {
  const auto goes = [&](size_t place, size_t length) {
    if (!characters) return is_python_space(character_at(text, place).code);
    const std::string_view character = text.substr(place, length);
    for (size_t i = 0; i < characters->size();) {
      const size_t other = character_at(*characters, i).length;
      if (std::string_view(*characters).substr(i, other) == character) return true;
      i += other;
    }
    return false;
  };
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::right && begin < end) {
    const size_t length = character_at(text, begin).length;
    if (!goes(begin, length)) break;
    begin += length;
  }
  while (side != Side::left && begin < end) {
    const size_t last = previous_character(text, end);
    if (!goes(last, end - last)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

std::vector<std::string> python_split(std::string_view text, const std::optional<std::string>& separator, int64_t limit,
                                      bool from_right) {
  if (!separator) return split_at_space(text, limit, from_right);
  std::vector<std::string> parts;
  const size_t width = separator->size();
  if (from_right) {
    size_t end = text.size();
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      const size_t at = end < width ? std::string_view::npos : text.rfind(*separator, end - width);
      if (at == std::string_view::npos) break;
      parts.emplace_back(text.substr(at + width, end - at - width));
      end = at;
    }
    parts.emplace_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.find(*separator, begin);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, at - begin));
    begin = at + width;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  const auto is_break = [](char32_t code) {
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
  };
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    size_t next = i + character.length;
    if (is_break(character.code)) {
      if (text[i] == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.emplace_back(text.substr(begin, (keep_ends ? next : i) - begin));
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, const std::string& from, const std::string& to, int64_t limit) {
  std::string result;
  int64_t count = 0;
  size_t place = 0;
  if (from.empty()) {  // between all characters, and at both ends
    while (limit < 0 || count < limit) {
      result += to;
      ++count;
      if (place >= text.size()) return result;
      const size_t width = character_at(text, place).length;
      result += text.substr(place, width);
      place += width;
    }
    return result + std::string(text.substr(place));
  }
  for (; limit < 0 || count < limit; ++count) {
    const size_t at = text.find(from, place);
    if (at == std::string_view::npos) break;
    result += text.substr(place, at - place);
    result += to;
    place = at + from.size();
  }
  return result + std::string(text.substr(place));
}

std::string upper(std::string_view text) {
  std::string result;
  for (char32_t code : codes_of(text)) append_upper(code, result);
  return result;
}

std::string lower(std::string_view text) {
  const std::u32string codes = codes_of(text);
  std::string result;
  for (size_t i = 0; i < codes.size(); ++i) append_lower(codes, i, result);
  return result;
}

std::string capitalized(std::string_view text) {
  const std::u32string codes = codes_of(text);
  std::string result;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i == 0) {
      append_title(codes[i], result);
    } else {
      append_lower(codes, i, result);
    }
  }
  return result;
}

std::string title(std::string_view text) {
  const std::u32string codes = codes_of(text);
  std::string result;
  bool inside = false;  // behind a letter that has case
  for (size_t i = 0; i < codes.size(); ++i) {
    if (inside) {
      append_lower(codes, i, result);
    } else {
      append_title(codes[i], result);
    }
    inside = is_cased(codes[i]);
  }
  return result;
}

std::string title_filter(std::string_view text) {
  const std::u32string codes = codes_of(text);
  const auto ends_word = [](char32_t code) {
    return is_python_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
  };
  std::string result;
  for (size_t i = 0; i < codes.size(); ++i) {
    const bool first = i == 0 || ends_word(codes[i - 1]);
    if (first || ends_word(codes[i])) {
      append_upper(codes[i], result);
    } else {
      append_lower(codes, i, result);
    }
  }
  return result;
}

int64_t length(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

std::string slice(std::string_view text, int64_t begin, int64_t end, int64_t step) {
  std::string result;
  if (step == 1 && is_ascii(text)) {
    if (begin < end) result = text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return result;
  }
  const std::vector<std::string_view> characters = split_characters(text);
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) result += characters[static_cast<size_t>(i)];
  return result;
}

}  // namespace vime::text::jinja
