// Bytes as text: two lower-case hexadecimal digits each. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vime {

std::string hex_of(const void* bytes, std::size_t count);
// Whether the text is exactly that of `count` bytes; they are written only then.
bool parse_hex(std::string_view text, void* bytes, std::size_t count);

}  // namespace vime
