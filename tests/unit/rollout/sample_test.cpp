#include "rollout/sample.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/strings.hpp"
#include "unit/rollout/samples.hpp"

using namespace vime;
using namespace vime::rollout;

namespace {

std::string complaint(const std::function<void(Sample&)>& damage) {
  Sample sample = make_sample(7, 2, 1.0);
  damage(sample);
  try {
    check_sample(sample);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::process_failed);
    return e.message();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a sound sample passes, with an empty response too") {
  CHECK_NOTHROW(check_sample(make_sample(1, 1, 0.5)));
  CHECK_NOTHROW(check_sample(make_sample(1, 1, std::nullopt, {3}, {})));
  CHECK(complaint([](Sample& s) { s.rollout_logprobs[0] = 1e-6; }) == "");
}

TEST_CASE("a log-prob that is no log-prob is caught with sample, prompt, engine and version") {
  for (double bad : {std::nan(""), -std::numeric_limits<double>::infinity(), 0.5}) {
    const std::string text = complaint([&](Sample& s) { s.rollout_logprobs[1] = bad; });
    CHECK(contains(text, "sample 7"));
    CHECK(contains(text, "prompt 102"));
    CHECK(contains(text, "http://127.0.0.1:1234"));
    CHECK(contains(text, "weight version 4"));
    CHECK(contains(text, "response token 1"));
  }
}

TEST_CASE("counts that do not fit are caught") {
  CHECK(contains(complaint([](Sample& s) { s.rollout_logprobs.pop_back(); }), "expected 3 log-probs, found 2"));
  CHECK(contains(complaint([](Sample& s) { s.response_len = 5; }), "at least one prompt token"));
  CHECK(contains(complaint([](Sample& s) { s.response_len = -1; }), "at least one prompt token"));
  CHECK(contains(complaint([](Sample& s) { s.tokens[2] = -9; }), "token 2 is -9"));
}

TEST_CASE("versions that go back and rewards that are no number are caught") {
  CHECK(contains(complaint([](Sample& s) { s.weight_version_last = 3; }), "version 3, older than its first"));
  CHECK(contains(complaint([](Sample& s) { s.reward = std::nan(""); }), "reward is not finite"));
}

TEST_CASE("only finished samples with a reward are trained on") {
  Sample sample = make_sample(1, 1, 1.0);
  CHECK(sample.is_trainable());
  sample.state = SampleState::truncated;
  CHECK(sample.is_trainable());
  sample.state = SampleState::aborted;
  CHECK_FALSE(sample.is_trainable());
  sample.state = SampleState::failed;
  CHECK_FALSE(sample.is_trainable());
  CHECK_FALSE(make_sample(1, 1, std::nullopt).is_trainable());
}

TEST_CASE("state names read back and unknown ones are refused") {
  for (auto state : {SampleState::completed, SampleState::truncated, SampleState::aborted, SampleState::failed}) {
    CHECK(parse_state(state_name(state)) == state);
  }
  CHECK_THROWS_AS(parse_state("complete"), Error);
}

TEST_CASE("the samples file holds one readable object per sample, whatever the text") {
  const TempDir dir;
  Sample odd = make_sample(1, 1, std::nullopt);
  odd.response = "line\nbreak \"quote\" \xff";
  odd.state = SampleState::failed;
  const std::vector<Sample> samples = {make_sample(0, 1, 0.25), odd};
  write_samples_jsonl(dir.path() / "r.jsonl", samples);
  const auto lines = split(read_file(dir.path() / "r.jsonl"), '\n');
  REQUIRE(lines.size() == 3);
  CHECK(lines[2].empty());
  const Json first = parse_json(lines[0], "line 0");
  CHECK(first["reward"] == 0.25);
  CHECK(first["state"] == "completed");
  CHECK(first["weight_version_first"] == 4);
  CHECK(first["weight_version_last"] == 4);
  CHECK(first["prompt"] == "12=");
  const Json second = parse_json(lines[1], "line 1");
  CHECK(second["reward"].is_null());
  CHECK(second["response"] == "line\nbreak \"quote\" \xef\xbf\xbd");
}
