#include "algo/advantage.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

using namespace vime::algo;

namespace {
using Rewards = std::vector<std::optional<double>>;
using Ids = std::vector<int64_t>;
constexpr double kTolerance = 1e-12;  // a handful of roundings of values near 1
}  // namespace

TEST_CASE("advantages of a group of four agree with the algebra done by hand") {
  // Mean 0.5; squares 0.25 each, sum 1, unbiased variance 1/3.
  const auto result = group_advantages(Rewards{1.0, 0.0, 0.0, 1.0}, Ids{5, 5, 5, 5});
  const double expected = 0.5 / (std::sqrt(1.0 / 3.0) + 1e-6);
  CHECK(result.advantages[0] == doctest::Approx(expected).epsilon(kTolerance));
  CHECK(result.advantages[1] == doctest::Approx(-expected).epsilon(kTolerance));
  CHECK(result.advantages[2] == doctest::Approx(-expected).epsilon(kTolerance));
  CHECK(result.advantages[3] == doctest::Approx(expected).epsilon(kTolerance));
  CHECK(result.groups == 1);
  CHECK(result.zero_std_groups == 0);
}

TEST_CASE("with the standard deviation off advantages are only centred") {
  const auto result = group_advantages(Rewards{1.0, 2.0, 6.0}, Ids{1, 1, 1}, {.std_normalization = false});
  CHECK(result.advantages == std::vector<double>{-2.0, -1.0, 3.0});
}

TEST_CASE("a group of equal rewards has advantages of exactly zero and is counted") {
  // The mean of three times 0.1 is not 0.1 in binary: without care the difference would be divided by 1e-6.
  const auto result = group_advantages(Rewards{0.1, 0.1, 0.1, 0.0, 1.0, 0.0}, Ids{1, 1, 1, 2, 2, 2});
  CHECK(result.advantages[0] == 0.0);
  CHECK(result.advantages[1] == 0.0);
  CHECK(result.advantages[2] == 0.0);
  CHECK(result.advantages[4] > 1.0);
  CHECK(result.groups == 2);
  CHECK(result.zero_std_groups == 1);
}

TEST_CASE("groups of one give zero and never divide by zero") {
  const auto result = group_advantages(Rewards{0.7, -3.0}, Ids{1, 2});
  CHECK(result.advantages == std::vector<double>{0.0, 0.0});
  CHECK(result.zero_std_groups == 2);
}

TEST_CASE("groups are told by their id, not by place or size") {
  // Group 9 holds 0, 2 and 4 (mean 2, deviation 2), group 3 holds 1 and 3 (mean 2, deviation sqrt 2), interleaved.
  const auto result = group_advantages(Rewards{0.0, 1.0, 4.0, 3.0, 2.0}, Ids{9, 3, 9, 3, 9});
  CHECK(result.advantages[0] == doctest::Approx(-2.0 / (2.0 + 1e-6)).epsilon(kTolerance));
  CHECK(result.advantages[2] == doctest::Approx(2.0 / (2.0 + 1e-6)).epsilon(kTolerance));
  CHECK(result.advantages[4] == 0.0);
  CHECK(result.advantages[1] == doctest::Approx(-1.0 / (std::sqrt(2.0) + 1e-6)).epsilon(kTolerance));
  CHECK(result.advantages[3] == doctest::Approx(1.0 / (std::sqrt(2.0) + 1e-6)).epsilon(kTolerance));
  CHECK(result.groups == 2);
}

TEST_CASE("a sample without a reward takes no part in its group's mean") {
  const auto with_gap = group_advantages(Rewards{1.0, std::nullopt, 0.0, 0.5}, Ids{1, 1, 1, 1});
  const auto without = group_advantages(Rewards{1.0, 0.0, 0.5}, Ids{1, 1, 1});
  CHECK(with_gap.advantages[0] == without.advantages[0]);
  CHECK(with_gap.advantages[1] == 0.0);
  CHECK(with_gap.advantages[2] == without.advantages[1]);
  CHECK(with_gap.advantages[3] == without.advantages[2]);
  CHECK(with_gap.without_reward == 1);
}

TEST_CASE("a group in which nothing was scored counts as a group without signal") {
  const auto result = group_advantages(Rewards{std::nullopt, std::nullopt}, Ids{1, 1});
  CHECK(result.advantages == std::vector<double>{0.0, 0.0});
  CHECK(result.groups == 1);
  CHECK(result.zero_std_groups == 1);
}

TEST_CASE("the largest rewards that are let in still give finite advantages") {
  const auto result = group_advantages(Rewards{1e30, -1e30, 1e30, 0.0}, Ids{1, 1, 1, 1});
  for (double a : result.advantages) CHECK(std::isfinite(a));
}

TEST_CASE("a reward that is no number is a bug of the caller") {
  CHECK_THROWS_AS(group_advantages(Rewards{std::nan("")}, Ids{1}), vime::Error);
  CHECK_THROWS_AS(group_advantages(Rewards{1.0}, Ids{1, 2}), vime::Error);
}

TEST_CASE("generalised advantages with lambda one are the discounted returns minus the values") {
  const std::vector<double> rewards = {1.0, 2.0, 3.0, 0.0, 0.0, 5.0};
  const std::vector<double> values = {0.5, 0.25, 0.125, 1.0, 1.0, 1.0};
  const Gae gae = generalized_advantages(rewards, values, 2, 3, 0.5, 1.0);
  CHECK(gae.returns[0] == doctest::Approx(1.0 + 0.5 * 2.0 + 0.25 * 3.0));
  CHECK(gae.returns[1] == doctest::Approx(2.0 + 0.5 * 3.0));
  CHECK(gae.returns[2] == doctest::Approx(3.0));
  CHECK(gae.returns[3] == doctest::Approx(0.25 * 5.0));
  CHECK(gae.advantages[3] == doctest::Approx(0.25 * 5.0 - 1.0));
  CHECK(generalized_advantages({}, {}, 0, 3, 1.0, 1.0).advantages.empty());
}

TEST_CASE("generalised advantages with lambda zero are one-step errors") {
  const Gae gae = generalized_advantages(std::vector<double>{1.0, 2.0}, std::vector<double>{0.5, 0.25}, 1, 2, 0.9, 0.0);
  CHECK(gae.advantages[0] == doctest::Approx(1.0 + 0.9 * 0.25 - 0.5));
  CHECK(gae.advantages[1] == doctest::Approx(2.0 - 0.25));
}
