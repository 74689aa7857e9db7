// Expected values are those of CPython 3.11.
#include "text/python_text.hpp"

#include <doctest/doctest.h>

using namespace vime::text::jinja;

using Parts = std::vector<std::string>;

TEST_CASE("split and rsplit take white space, separators and limits as Python does") {
  CHECK(python_split("  a b\tc ", std::nullopt, -1, false) == Parts{"a", "b", "c"});
  CHECK(python_split("  a b  c ", std::nullopt, 1, false) == Parts{"a", "b  c "});
  CHECK(python_split("  a b  c ", std::nullopt, 1, true) == Parts{"  a b", "c"});
  CHECK(python_split("a,,b,", ",", -1, false) == Parts{"a", "", "b", ""});
  CHECK(python_split("a,,b,", ",", 2, true) == Parts{"a,", "b", ""});
  CHECK(python_split("", std::nullopt, -1, false).empty());
  CHECK(python_split("", ",", -1, false) == Parts{""});
}

TEST_CASE("strip knows characters, not bytes") {
  CHECK(strip("\xc3\xa9 a\xc3\xa9", std::string("\xc3\xa9"), Side::both) == " a");
  CHECK(strip("\xe3\x80\x80 a\x1c", std::nullopt, Side::both) == "a");
  CHECK(strip("xxaxx", std::string("x"), Side::left) == "axx");
  CHECK(strip("xxaxx", std::string("x"), Side::right) == "xxa");
}

TEST_CASE("replace puts an empty pattern between all characters") {
  CHECK(replaced("ab", "", "-", -1) == "-a-b-");
  CHECK(replaced("ab", "", "-", 2) == "-a-b");
  CHECK(replaced("aaa", "a", "b", 2) == "bba");
  CHECK(replaced("aaa", "aa", "b", -1) == "ba");
}

TEST_CASE("lines end where Python says so") {
  CHECK(split_lines("a\r\nb\n\nc", false) == Parts{"a", "b", "", "c"});
  CHECK(split_lines("a\nb\n", true) == Parts{"a\n", "b\n"});
}

TEST_CASE("titles begin behind what is no letter, in the filter behind white space and brackets") {
  CHECK(title("it's a b2b-test") == "It'S A B2B-Test");
  CHECK(title_filter("it's a b2b-test (fOO)") == "It's A B2b-Test (Foo)");
  CHECK(capitalized("hELLO wORLD") == "Hello world");
}

TEST_CASE("slices count characters") {
  CHECK(slice("h\xc3\xa9llo", 1, 3, 1) == "\xc3\xa9l");
  CHECK(slice("h\xc3\xa9l", 2, -1, -1) == "l\xc3\xa9h");
  CHECK(length("h\xc3\xa9l") == 3);
}
