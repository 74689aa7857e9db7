#include "base/hex.hpp"

namespace vime {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string hex_of(const void* bytes, std::size_t count) {
  const auto* const from = static_cast<const unsigned char*>(bytes);
  std::string text;
  text.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[from[i] >> 4];
    text += kDigits[from[i] & 15];
  }
  return text;
}

bool parse_hex(std::string_view text, void* bytes, std::size_t count) {
  if (text.size() != 2 * count || text.find_first_not_of(kDigits) != std::string_view::npos) return false;
  auto* const to = static_cast<unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<unsigned char>(16 * kDigits.find(text[2 * i]) + kDigits.find(text[2 * i + 1]));
  }
  return true;
}

}  // namespace vime
