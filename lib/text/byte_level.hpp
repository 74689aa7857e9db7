// The byte-level alphabet of GPT-2: each byte has a printable character, so that any bytes are text. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vime::text {

// Each byte of `bytes` as its character.
void append_byte_level(std::string_view bytes, std::string& text);

// The byte that a character stands for, or -1 where it stands for none.
int byte_of_character(char32_t code);

}  // namespace vime::text
