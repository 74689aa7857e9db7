// Bytes as text for JSON: standard base64 (RFC 4648, section 4) with padding and without line breaks. Pure.
#pragma once

#include <cstddef>
#include <string>

namespace vime {

std::string base64_of(const void* bytes, std::size_t count);

}  // namespace vime
