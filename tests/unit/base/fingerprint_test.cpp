#include "base/fingerprint.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace vime;

namespace {

uint64_t of(std::initializer_list<std::string_view> texts) {
  Fingerprint fingerprint(0);
  for (const std::string_view text : texts) fingerprint.add_text(text);
  return fingerprint.value();
}

}  // namespace

TEST_CASE("what was added has the same fingerprint for ever") {
  // Of checkpoints that exist; computed by the code that wrote them.
  Fingerprint texts(1);
  texts.add(7);
  for (const char* text : {"sort 4 2 7 1", "", "12345678"}) texts.add_text(text);
  CHECK(texts.value() == 0xb9ebcc7fbeab2947);
  Fingerprint words(2);
  words.add(19);
  words.add_bytes("abcdefghijklmnop");
  CHECK(words.value() == 0x1b3c8d4162b59268);
}

TEST_CASE("order, borders and trailing zeros are part of a fingerprint") {
  using namespace std::string_view_literals;
  const std::set<uint64_t> distinct{
      of({}),      of({""}),        of({"", ""}),    of({"ab", "c"}),  of({"a", "bc"}),
      of({"abc"}), of({"c", "ab"}), of({"abc\0"sv}), of({"abcdefgh"}), of({"abcdefgh\0"sv})};
  CHECK(distinct.size() == 10);
}
