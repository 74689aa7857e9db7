#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "reward/builtin.hpp"
#include "reward/score.hpp"
#include "reward/verifiers.hpp"

using namespace vime;
using namespace vime::reward;

TEST_CASE("position_match gives half for the share of right positions and half for an exact answer") {
  CHECK(position_match("1234", "1234") == 1.0);
  CHECK(position_match("1243", "1234") == 0.25);  // two of four right
  CHECK(position_match("4321", "1234") == 0.0);
  CHECK(position_match("1239", "1234") == 0.375);  // three of four right
  CHECK(position_match("", "1234") == 0.0);
  CHECK(position_match("12", "1234") == 0.25);
}

TEST_CASE("extra characters cost only the exact half of position_match") {
  CHECK(position_match("12345", "1234") == 0.5);
}

TEST_CASE("an empty label is matched by an empty response only") {
  CHECK(position_match("", "") == 1.0);
  CHECK(position_match("1", "") == 0.0);
}

TEST_CASE("exact_match is one for equal texts and zero otherwise") {
  CHECK(exact_match("1234", "1234") == 1.0);
  CHECK(exact_match("1234 ", "1234") == 0.0);
  CHECK(exact_match("", "1") == 0.0);
}

TEST_CASE("what is no sane number is never accepted as a reward") {
  CHECK(accepted(0.5) == 0.5);
  CHECK(accepted(-kLargestReward) == -kLargestReward);
  CHECK_FALSE(accepted(std::nan("")));
  CHECK_FALSE(accepted(std::numeric_limits<double>::infinity()));
  CHECK_FALSE(accepted(-std::numeric_limits<double>::infinity()));
  CHECK_FALSE(accepted(1e308));
}

TEST_CASE("a built-in reward is found by its name, and each has one") {
  const Builtins builtins("");
  ScoreItem item;
  item.response = "1112";
  item.label = "1111";
  CHECK(builtins.score("exact_match", item).value == 0.0);
  CHECK(builtins.score("position_match", item).value == 0.375);
  for (const std::string& name : builtin_names()) CHECK(is_builtin(name));
  CHECK_FALSE(is_builtin("command"));
}

TEST_CASE("an unknown reward is refused with the nearest name, another trainer's word with vime's") {
  const auto hint_of = [](const std::string& type) {
    try {
      refuse_type("reward.type", type, true);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::refused);
      CHECK(e.message().find("position_match") != std::string::npos);
      return e.hint();
    }
  };
  CHECK(hint_of("exact_mach") == "did you mean \"exact_match\"?");
  CHECK(hint_of("deepscaler") == "did you mean \"boxed\"?");
}

TEST_CASE("samples without a number are counted by reason and are an error above the ratio") {
  Tally tally;
  check_missing(tally, 0, 0.0);
  for (int i = 0; i < 18; ++i) tally.add(score_of(0.5));
  check_missing(tally, 20, 0.0);
  tally.add(no_score(Missing::timeout, "sample 4: no answer"));
  tally.add(score_of(std::nan("")));
  CHECK(tally.scored == 18);
  CHECK(tally.without_number() == 2);
  CHECK(tally.by_reason() == "1 not_finite, 1 timeout");
  check_missing(tally, 20, 0.1);
  check_missing(tally, 40, 0.05);  // half of the rollout is still to be scored
  try {
    check_missing(tally, 20, 0.05);
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::process_failed);
    CHECK(e.message().find("2 of 20 samples got no reward (1 not_finite, 1 timeout)") != std::string::npos);
    CHECK(e.message().find("sample 4: no answer") != std::string::npos);
  }
}
