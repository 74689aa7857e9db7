#include "data/builtin.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

using namespace vime;
using namespace vime::data;

TEST_CASE("the splits of sort_digits are disjoint and together hold every prompt once") {
  std::set<std::string> texts;
  std::set<int64_t> ids;
  const auto train = builtin_prompts("builtin:sort_digits");
  const auto held_out = builtin_prompts("builtin:sort_digits/heldout");
  for (const auto* split : {&train, &held_out}) {
    for (const Prompt& prompt : *split) {
      texts.insert(prompt.text);
      ids.insert(prompt.id);
    }
  }
  CHECK(train.size() + held_out.size() == 10000);
  CHECK(texts.size() == 10000);
  CHECK(ids.size() == 10000);
  CHECK(held_out.size() > 400);
  CHECK(held_out.size() < 600);
}

TEST_CASE("a sort_digits prompt is four digits and an equals sign, its label the digits in order") {
  for (const char* name : {"builtin:sort_digits", "builtin:sort_digits/heldout"}) {
    for (const Prompt& prompt : builtin_prompts(name)) {
      REQUIRE(prompt.text.size() == 5);
      REQUIRE(prompt.text[4] == '=');
      const std::string digits = prompt.text.substr(0, 4);
      REQUIRE(prompt.id == std::stoi(digits));
      REQUIRE(std::is_sorted(prompt.label.begin(), prompt.label.end()));
      REQUIRE(std::is_permutation(digits.begin(), digits.end(), prompt.label.begin(), prompt.label.end()));
      REQUIRE(is_held_out(digits) == (std::string(name).find("heldout") != std::string::npos));
    }
  }
}

TEST_CASE("the splits of sort_8_digits hold a hundred thousand prompts of eight digits, each once") {
  std::set<std::string> texts;
  size_t held_out = 0;
  for (const char* name : {"builtin:sort_8_digits", "builtin:sort_8_digits/heldout"}) {
    const auto split = builtin_prompts(name);
    held_out = split.size();
    for (const Prompt& prompt : split) {
      REQUIRE(prompt.text.size() == 9);
      const std::string digits = prompt.text.substr(0, 8);
      REQUIRE(std::is_sorted(prompt.label.begin(), prompt.label.end()));
      REQUIRE(std::is_permutation(digits.begin(), digits.end(), prompt.label.begin(), prompt.label.end()));
      REQUIRE(is_held_out(digits) == (std::string(name).find("heldout") != std::string::npos));
      REQUIRE(prompt.id < kBuiltinIds);
      texts.insert(prompt.text);
    }
  }
  CHECK(texts.size() == 100000);
  CHECK(held_out > 4500);
  CHECK(held_out < 5500);
}

// Checkpoints and comparisons between runs rest on the split: it may never move.
TEST_CASE("the held-out split is the same for ever") {
  const auto held_out = builtin_prompts("builtin:sort_digits/heldout");
  REQUIRE(held_out.size() >= 3);
  CHECK(held_out.size() == 498);
  CHECK(held_out[0].text == "0010=");
  CHECK(held_out[1].text == "0043=");
  CHECK(held_out.back().text == "9996=");
}

TEST_CASE("the held-out prompts cover many different answers") {
  std::set<std::string> labels;
  for (const Prompt& prompt : builtin_prompts("builtin:sort_digits/heldout")) labels.insert(prompt.label);
  CHECK(labels.size() > 250);
}

TEST_CASE("an unknown data set is refused with the nearest name") {
  try {
    builtin_prompts("builtin:sort_digit");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(e.hint() == "did you mean \"builtin:sort_digits\"?");
    CHECK(e.message().find("builtin:sort_digits/heldout") != std::string::npos);
  }
  CHECK_THROWS_AS(builtin_prompts("prompts.jsonl"), Error);
  CHECK_THROWS_AS(builtin_alphabet("builtin:nothing"), Error);
  CHECK(is_builtin("builtin:nothing"));
  CHECK_FALSE(is_builtin("data/builtin:x"));
}
