#include "base/hex.hpp"

#include <doctest/doctest.h>

#include <cstring>

using namespace vime;

TEST_CASE("bytes go to hexadecimal digits and back") {
  const unsigned char bytes[] = {0x00, 0x0f, 0xf0, 0xff, 0x1a};
  CHECK(hex_of(bytes, 5) == "000ff0ff1a");
  unsigned char back[5] = {};
  CHECK(parse_hex("000ff0ff1a", back, 5));
  CHECK(std::memcmp(back, bytes, 5) == 0);
  CHECK(hex_of(bytes, 0).empty());
}

TEST_CASE("what are not the digits of so many bytes is not taken, and nothing is written") {
  for (const char* wrong : {"000ff0ff1", "000ff0ff1a0", "000ff0ff1A", "000ff0ff1g", "", " 00ff0ff1a"}) {
    unsigned char bytes[5] = {7, 7, 7, 7, 7};
    CHECK_FALSE(parse_hex(wrong, bytes, 5));
    for (const unsigned char byte : bytes) CHECK(byte == 7);
  }
}
