#include "text/byte_level.hpp"

#include <array>

#include "text/utf8.hpp"

namespace vime::text {
namespace {

// Printable bytes of Latin-1 are their own characters; the other 68 take U+0100 onwards in order.
bool is_own_character(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<char, 256 * 2> text{};
  std::array<uint8_t, 256> length{};
  std::array<int16_t, 256 + 68> byte{};

  Alphabet() {
    byte.fill(-1);
    char32_t other = 0x100;
    for (int b = 0; b < 256; ++b) {
      const char32_t code = is_own_character(b) ? static_cast<char32_t>(b) : other++;
      std::string character;
      append_character(character, code);
      character.copy(&text[static_cast<size_t>(b) * 2], 2);
      length[static_cast<size_t>(b)] = static_cast<uint8_t>(character.size());
      byte[code] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

void append_byte_level(std::string_view bytes, std::string& text) {
  const Alphabet& known = alphabet();
  for (char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text.append(&known.text[size_t{byte} * 2], known.length[byte]);
  }
}

int byte_of_character(char32_t code) {
  const Alphabet& known = alphabet();
  return code < known.byte.size() ? known.byte[code] : -1;
}

}  // namespace vime::text
