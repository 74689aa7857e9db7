#include "base/base64.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using namespace vime;

TEST_CASE("bytes become the texts that RFC 4648 names") {
  const auto of = [](std::string_view text) { return base64_of(text.data(), text.size()); };
  CHECK(of("") == "");
  CHECK(of("f") == "Zg==");
  CHECK(of("fo") == "Zm8=");
  CHECK(of("foo") == "Zm9v");
  CHECK(of("foob") == "Zm9vYg==");
  CHECK(of("fooba") == "Zm9vYmE=");
  CHECK(of("foobar") == "Zm9vYmFy");
}

TEST_CASE("high bytes use the whole standard alphabet") {
  const unsigned char bytes[] = {0xfb, 0xff, 0xfe, 0x00, 0x80};
  CHECK(base64_of(bytes, 5) == "+//+AIA=");
}
