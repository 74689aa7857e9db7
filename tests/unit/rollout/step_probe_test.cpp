#include "rollout/step_probe.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace vime;
using namespace vime::rollout;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// As it travels: as text.
StepAnswer travelled(const StepAnswer& answer) {
  return parse_step_answer(parse_json(to_json(answer).dump(), "answer"), "answer");
}

StepAnswer one_answer() {
  StepAnswer answer;
  answer.shards.push_back({.name = "w",
                           .full_shape = {8, 4},
                           .dim = 1,
                           .begin = 2,
                           .end = 4,
                           .shape = {8, 2},
                           .gradient = {1.5, 2.25, 16, 0.1, 0.01, 7, 1.0 / 3.0, -1e-30},
                           .weight = {}});
  answer.logprobs = {-0.1, -1.0 / 3.0};
  answer.logprobs_after = {-2.5};
  return answer;
}

}  // namespace

TEST_CASE("a probe and its answer keep every bit on their way") {
  const StepProbe probe = parse_step_probe(to_json(StepProbe{"a", "b", 1.0 / 128, true}), "probe");
  CHECK(probe.write == "a");
  CHECK(probe.against == "b");
  CHECK(probe.weight_spacing == 1.0 / 128);
  CHECK(probe.round_weights);
  const StepAnswer expected = one_answer(), found = travelled(expected);
  REQUIRE(found.shards.size() == 1);
  const ShardFigures& shard = found.shards[0];
  CHECK(shard.name == "w");
  CHECK(shard.full_shape == tensor::Shape{8, 4});
  CHECK(shard.shape == tensor::Shape{8, 2});
  CHECK(shard.dim == 1);
  CHECK(shard.begin == 2);
  CHECK(shard.end == 4);
  CHECK(shard.gradient.largest == 1.5);
  CHECK(shard.gradient.squares == 2.25);
  CHECK(shard.gradient.compared == 16);
  CHECK(shard.gradient.difference == 0.1);
  CHECK(shard.gradient.difference_squares == 0.01);
  CHECK(shard.gradient.at == 7);
  CHECK(shard.gradient.found == 1.0 / 3.0);
  CHECK(shard.gradient.expected == -1e-30);
  CHECK(found.logprobs == expected.logprobs);
  CHECK(found.logprobs_after == expected.logprobs_after);
}

TEST_CASE("what is no number stays what it is") {
  StepAnswer answer = one_answer();
  answer.logprobs = {std::nan(""), kInfinity, -kInfinity};
  answer.shards[0].gradient.difference = kInfinity;
  answer.shards[0].gradient.found = std::nan("");
  const StepAnswer found = travelled(answer);
  CHECK(std::isnan(found.logprobs[0]));
  CHECK(found.logprobs[1] == kInfinity);
  CHECK(found.logprobs[2] == -kInfinity);
  CHECK(found.shards[0].gradient.difference == kInfinity);
  CHECK(std::isnan(found.shards[0].gradient.found));
}

TEST_CASE("an answer that is none is an error that names the place") {
  Json json = to_json(one_answer());
  json["shards"][0]["gradient"]["largest"] = nullptr;  // what JSON makes of a NaN
  CHECK_THROWS_WITH_AS(parse_step_answer(json, "rank 3"),
                       "rank 3: w: gradient: \"largest\": expected a number, \"nan\", \"inf\" or \"-inf\"", Error);
  json = to_json(one_answer());
  json.erase("logprobs");
  CHECK_THROWS_WITH_AS(parse_step_answer(json, "rank 3"), "rank 3: \"logprobs\" is missing", Error);
  json["logprobs"] = 1;
  CHECK_THROWS_WITH_AS(parse_step_answer(json, "rank 3"), "rank 3: \"logprobs\": expected a list", Error);
}
