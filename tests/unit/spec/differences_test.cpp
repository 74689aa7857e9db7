#include "spec/differences.hpp"

#include <algorithm>
#include <set>

#include "spec/print.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

namespace {

std::vector<std::string> told(const ExperimentSpec& before, const ExperimentSpec& now) {
  std::vector<std::string> lines;
  for (const Difference& one : differences(before, now))
    lines.push_back(one.key + ": " + one.before + " -> " + one.now);
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("each key that differs is told with both values, in the table's order") {
  const ExperimentSpec before = sound_with({});
  CHECK(told(before, before).empty());
  const ExperimentSpec now = sound_with({"rollout.rollout_stop_token_ids=[1, 2]", "trainer.lr=2e-3",
                                         "checkpoint.save_interval=5", "weight_sync.update_weight_buffer_size=1MiB"});
  CHECK(told(before, now) == Lines{"trainer.lr: 1e-06 -> 0.002", "rollout.rollout_stop_token_ids: [] -> [1, 2]",
                                   "weight_sync.update_weight_buffer_size: 512MiB -> 1MiB",
                                   "checkpoint.save_interval: null -> 5"});
}

TEST_CASE("entries of a list are compared one by one, and its length as a whole") {
  const std::string first = "{name: a, prompt_data: builtin:sort_digits, temperature: 0.5}";
  const std::string second = ", {name: b, prompt_data: builtin:sort_digits/heldout}";
  const ExperimentSpec one = sound_with({"eval.datasets=[" + first + "]"});
  const ExperimentSpec two = sound_with({"eval.datasets=[" + first + second + "]"});
  const ExperimentSpec other =
      sound_with({"eval.datasets=[{name: a, prompt_data: builtin:sort_digits}" + second + "]"});
  CHECK(told(one, two) == Lines{"eval.datasets: 1 entry -> 2 entries"});
  CHECK(told(two, other) == Lines{"eval.datasets[0].temperature: 0.5 -> 0.0"});
}

TEST_CASE("a resolved spec reads back without its files and says what it is when it is none") {
  ExperimentSpec spec = sound_with({"trainer.lr=0.5"});
  spec.model.preset.reset();
  spec.model.path = "/gone";
  CHECK(read_resolved(to_yaml(spec), "old.yaml") == spec);
  CHECK_THROWS_WITH_AS(read_resolved("trainer: {no_such_key: 1}", "old.yaml"),
                       doctest::Contains("old.yaml:1:11: unknown key \"no_such_key\""), vime::Error);
}
