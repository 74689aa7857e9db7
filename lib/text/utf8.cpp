#include "text/utf8.hpp"

#include <algorithm>
#include <cstdint>

namespace vime::text {
namespace {

// What may start at a byte: the character's length and the range that its second byte must lie in.
struct Lead {
  size_t length;
  uint8_t second_low;
  uint8_t second_high;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xc2 && byte <= 0xdf) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte >= 0xf1 && byte <= 0xf3) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// Bytes from `offset` on that form the beginning of a character, at most `lead.length`.
size_t well_formed_prefix(std::string_view text, size_t offset, const Lead& lead) {
  size_t count = 1;
  while (count < lead.length && offset + count < text.size()) {
    const auto byte = static_cast<uint8_t>(text[offset + count]);
    const uint8_t low = count == 1 ? lead.second_low : 0x80;
    const uint8_t high = count == 1 ? lead.second_high : 0xbf;
    if (byte < low || byte > high) break;
    ++count;
  }
  return count;
}

}  // namespace

size_t character_length(std::string_view text, size_t offset) {
  if (offset >= text.size()) return 0;
  const Lead lead = classify(static_cast<uint8_t>(text[offset]));
  return lead.length > 0 && well_formed_prefix(text, offset, lead) == lead.length ? lead.length : 0;
}

Character character_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t place) { return static_cast<char32_t>(static_cast<uint8_t>(text[offset + place])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

void append_character(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<uint8_t>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

bool is_whitespace(char32_t code) {
  if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0d);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t offset = 0; offset < text.size();) {
    const size_t length = std::max<size_t>(1, character_length(text, offset));
    characters.push_back(text.substr(offset, length));
    offset += length;
  }
  return characters;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

bool is_valid_utf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    if (static_cast<uint8_t>(text[offset]) < 0x80) {
      ++offset;
      continue;
    }
    const size_t length = character_length(text, offset);
    if (length == 0) return false;
    offset += length;
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const Lead lead = classify(static_cast<uint8_t>(text[offset]));
    const size_t length = lead.length == 0 ? 1 : well_formed_prefix(text, offset, lead);
    if (length == lead.length) {
      valid += text.substr(offset, length);
    } else {
      valid += "\xef\xbf\xbd";
    }
    offset += length;
  }
  return valid;
}

}  // namespace vime::text
