#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "reward/builtin.hpp"
#include "reward/rewards.hpp"
#include "reward/verifiers.hpp"

using namespace vime;
using namespace vime::reward;

TEST_CASE("a regular expression matches anywhere, and its group is held against the label") {
  CHECK(Regex("ca+t").score("a caaat", std::nullopt).value == 1.0);
  CHECK(Regex("^cat$").score("a cat", std::nullopt).value == 0.0);
  const Regex answer("answer:\\s*(\\w+)");
  CHECK(answer.score("answer: 7", "7").value == 1.0);
  CHECK(answer.score("answer: 7 answer: 8", "7").value == 0.0);  // the last match counts
  CHECK(answer.score("answer: 7 answer: 8", " 8 ").value == 1.0);
  CHECK(answer.score("none", "7").value == 0.0);
  CHECK(Regex("x*").score("", "x").value == 1.0);
  CHECK(Regex("(x*)").score("é\xff", "").value == 1.0);  // empty matches and bytes that are not UTF-8 end
}

TEST_CASE("a wrong expression is refused with its place, and as a label it is a bad label") {
  try {
    Regex regex("a(b");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(e.message().find("offset 3") != std::string::npos);
  }
  const Score score = Builtins("").score("regex", {"", "ab", "a(b"});
  CHECK_FALSE(score.value);
  CHECK(score.why == Missing::bad_label);
}

TEST_CASE("an expression that takes too many steps gives no score") {
  const std::string hostile(16000, 'a');
  const Score score = Regex("(a+)+[bc]").score(hostile, std::nullopt);
  CHECK_FALSE(score.value);
  CHECK(score.why == Missing::limit);
}

TEST_CASE("a wrong pattern is refused with the options") {
  RewardOptions options;
  options.type = "regex";
  options.pattern = "(";
  CHECK_THROWS_WITH_AS(check_options(options), doctest::Contains("regular expression \"(\""), Error);
  options.pattern = "(x)";
  check_options(options);
}
