// UTF-8 as the tokenizers need it: one place that decides what a character is and what happens to bytes that are none.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vime::text {

// Length in bytes of the character that starts at `offset`, or 0 where the bytes there are not well-formed UTF-8
// (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
size_t character_length(std::string_view text, size_t offset);

struct Character {
  char32_t code = 0;
  size_t length = 0;  // in bytes
};

// The character at `offset` of text that is known to be well-formed; nothing is checked.
Character character_at(std::string_view text, size_t offset);

void append_character(std::string& text, char32_t code);

// Unicode's White_Space property.
bool is_whitespace(char32_t code);

// The characters of `text` in order. A byte that belongs to no well-formed character stands alone.
std::vector<std::string_view> split_characters(std::string_view text);

// `text` with U+FFFD for every maximal ill-formed part (Unicode's recommended practice), so that it can stand in JSON.
std::string valid_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);

}  // namespace vime::text
