#include "text/utf8.hpp"

#include <doctest/doctest.h>

using namespace vime::text;

TEST_CASE("text splits into its characters and stray bytes stand alone") {
  const auto parts = split_characters("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff!");
  REQUIRE(parts.size() == 6);
  CHECK(parts[1] == "\xc3\xa9");
  CHECK(parts[2] == "\xe2\x82\xac");
  CHECK(parts[3] == "\xf0\x9f\x98\x80");
  CHECK(parts[4] == "\xff");
  CHECK(split_characters("").empty());
}

TEST_CASE("overlong forms, surrogates and code points beyond Unicode are no characters") {
  CHECK(character_length("\xc0\x80", 0) == 0);
  CHECK(character_length("\xe0\x9f\xbf", 0) == 0);
  CHECK(character_length("\xed\xa0\x80", 0) == 0);
  CHECK(character_length("\xf4\x90\x80\x80", 0) == 0);
  CHECK(character_length("\xf0\x8f\xbf\xbf", 0) == 0);
  CHECK(character_length("\xed\x9f\xbf", 0) == 3);
  CHECK(character_length("\xf4\x8f\xbf\xbf", 0) == 4);
  CHECK(character_length("\xe2\x82", 0) == 0);
  CHECK(character_length("", 0) == 0);
}

// The example of the Unicode standard, chapter 3.9, "U+FFFD substitution of maximal subparts".
TEST_CASE("each maximal ill-formed part becomes one replacement character") {
  const std::string u = "\xef\xbf\xbd";
  CHECK(valid_utf8("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64") ==
        "a" + u + u + u + "b" + u + "c" + u + u + "d");
  CHECK(valid_utf8("plain \xe2\x82\xac") == "plain \xe2\x82\xac");
  CHECK(valid_utf8("\xf0\x9f\x98") == u);
}
