#include "base/base64.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace vime {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64_of(const void* bytes, std::size_t count) {
  const auto* const from = static_cast<const unsigned char*>(bytes);
  std::string text;
  text.reserve((count + 2) / 3 * 4);
  for (std::size_t i = 0; i < count; i += 3) {
    const std::size_t taken = std::min<std::size_t>(3, count - i);
    uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < taken ? from[i + k] : 0u);
    // n bytes fill n + 1 digits; the rest of the four is padding.
    for (std::size_t k = 0; k < 4; ++k) text += k <= taken ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace vime
