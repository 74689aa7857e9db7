#include "rollout/metrics.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "unit/rollout/samples.hpp"

using namespace vime;
using namespace vime::rollout;

TEST_CASE("the rollout's figures agree with a count by hand") {
  std::vector<Sample> samples = {make_sample(0, 1, 1.0),
                                 make_sample(1, 1, 0.5, {3}, {8}),
                                 make_sample(2, 2, 0.25, {3}, {}),
                                 make_sample(3, 2, 0.25, {9}, {1, 2}),
                                 make_sample(4, 3, std::nullopt, {9}, {4, 4, 4, 4}),
                                 make_sample(5, 3, 1.0)};
  samples[0].state = SampleState::truncated;
  samples[4].state = SampleState::failed;  // cut off, and then without a score
  for (const size_t cut : {0, 4}) samples[cut].finish_reason = "length";
  samples[5].state = SampleState::aborted;
  const RolloutMetrics metrics = rollout_metrics(samples);
  CHECK(metrics.samples == 6);
  CHECK(metrics.raw_reward == doctest::Approx(3.0 / 5));
  CHECK(metrics.response_len_mean == doctest::Approx(13.0 / 6));
  CHECK(metrics.response_len_median == 2.5);
  CHECK(metrics.response_len_min == 0);
  CHECK(metrics.response_len_max == 4);
  CHECK(metrics.truncated_ratio == doctest::Approx(2.0 / 6));
  CHECK(metrics.groups == 3);
  CHECK(metrics.zero_std_groups == 2);  // group 2 is constant, group 3 has nothing to train on
  CHECK(metrics.without_reward == 1);
  CHECK(metrics.aborted == 1);
  CHECK(metrics.failed == 1);
}

TEST_CASE("the figures do not depend on the order of arrival, to the last bit") {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < 30; ++i) samples.push_back(make_sample(i, i / 3, 1.0 / static_cast<double>(3 + i)));
  const Json expected = to_json(rollout_metrics(samples));
  std::reverse(samples.begin(), samples.end());
  CHECK(to_json(rollout_metrics(samples)).dump() == expected.dump());
  std::rotate(samples.begin(), samples.begin() + 11, samples.end());
  CHECK(to_json(rollout_metrics(samples)).dump() == expected.dump());
}

TEST_CASE("the figures carry slime's names") {
  const std::vector<Sample> samples = {make_sample(0, 1, 0.5)};
  const Json json = to_json(rollout_metrics(samples));
  for (const char* name : {"rollout/raw_reward", "rollout/response_len/mean", "rollout/response_len/min",
                           "rollout/response_len/max", "rollout/truncated_ratio", "rollout/zero_std_groups"}) {
    CHECK(json.contains(name));
  }
}

TEST_CASE("a rollout in which nothing was scored has no mean reward") {
  const std::vector<Sample> samples = {make_sample(0, 1, std::nullopt)};
  CHECK(std::isnan(rollout_metrics(samples).raw_reward));
  CHECK_THROWS_AS(rollout_metrics({}), Error);
}
