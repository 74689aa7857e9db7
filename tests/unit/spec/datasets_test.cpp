// eval.datasets: a list of sections, and the short form of a single one.
#include <algorithm>

#include "spec_text.hpp"

using namespace vime::spec;

namespace {

const std::string kEval = "eval:\n  eval_interval: 5\n  temperature: 0.5\n  max_response_len: 3\n  datasets:\n";
const std::string kFirst = "    - name: first\n      prompt_data: builtin:sort_digits\n";

ExperimentSpec with_sets(const std::string& sets) {
  return parse(kSound + kEval + sets, "s.yaml");
}

// Line 11 is the first of `sets`.
std::string set_refusal(const std::string& sets, const std::vector<std::string>& overrides = {}) {
  return refusal(kSound + kEval + sets, overrides);
}

}  // namespace

TEST_CASE("an entry takes what it leaves out from the section, and the section its own defaults") {
  const ExperimentSpec spec = with_sets(
      kFirst +
      "    - {name: b/2, prompt_data: builtin:sort_digits/heldout, reward: position_match, num_samples: null,\n"
      "       n_samples_per_eval_prompt: 4, temperature: 1, top_p: 0.5, top_k: 3, max_response_len: 2}\n");
  REQUIRE(spec.eval.datasets.size() == 2);
  CHECK(spec.eval.datasets[0] == EvalDataset{"first", "builtin:sort_digits", std::nullopt, 256, 1, 0.5, 1.0, -1, 3});
  CHECK(spec.eval.datasets[1] ==
        EvalDataset{"b/2", "builtin:sort_digits/heldout", "position_match", std::nullopt, 4, 1.0, 0.5, 3, 2});
  CHECK_FALSE(spec.eval.prompt_data.has_value());
  // A derived default is inherited too.
  CHECK(sound_with({"eval.datasets=[{name: a, prompt_data: builtin:sort_digits}]"}).eval.datasets[0].max_response_len ==
        4);
  CHECK(parse(kSound + kEval + kFirst, "s.yaml", {"eval.num_samples=7"}).eval.datasets[0].num_samples == 7);
}

TEST_CASE("the short form becomes the only entry, named after its data") {
  const ExperimentSpec spec = sound_with({"eval.eval_interval=5", "eval.prompt_data=builtin:sort_digits/heldout",
                                          "eval.reward=position_match", "eval.num_samples=9"});
  REQUIRE(spec.eval.datasets.size() == 1);
  CHECK(spec.eval.datasets[0] ==
        EvalDataset{"sort_digits/heldout", "builtin:sort_digits/heldout", "position_match", 9, 1, 0.0, 1.0, -1, 4});
  CHECK_FALSE(spec.eval.prompt_data.has_value());
  CHECK(sound_with({}).eval.datasets.empty());
}

TEST_CASE("the short form and the list together are refused with the cure") {
  CHECK(contains(set_refusal(kFirst, {"eval.prompt_data=builtin:sort_digits"}),
                 "s.yaml:11:5: \"eval.prompt_data\" and \"eval.datasets\" are both given; leave prompt_data out"));
  CHECK(set_refusal("    []\n", {"eval.prompt_data=builtin:sort_digits"}).empty());
}

TEST_CASE("keys of an entry are as strict as all others") {
  CHECK(set_refusal(kFirst + "      tempreature: 1\n") ==
        "s.yaml:13:7: unknown key \"tempreature\" in \"eval.datasets\" (did you mean \"temperature\"?)");
  CHECK(set_refusal(kFirst + "      temperature: hot\n") ==
        "s.yaml:13:20: \"eval.datasets[0].temperature\" must be a number of at least 0, found \"hot\"");
  CHECK(contains(set_refusal(kFirst + "      top_p: 0\n"), "must be a number above 0 to 1, found 0"));
  CHECK(contains(set_refusal(kFirst + "      top_p: 1.5\n"), "must be a number above 0 to 1, found 1.5"));
  CHECK(contains(set_refusal(kFirst + "      top_k: 0\n"),
                 "s.yaml:13:14: \"eval.datasets[0].top_k\" must be -1 (all tokens) or at least 1, found 0"));
  CHECK(contains(set_refusal(kFirst + "      n_samples_per_eval_prompt: 0\n"), "must be an integer from 1 to"));
  CHECK(contains(set_refusal(kFirst + "      num_samples: 0\n"), "must be an integer from 1 to"));
  CHECK(contains(set_refusal(kFirst + "      reward: exact_mach\n"), "did you mean \"exact_match\"?"));
  CHECK(contains(set_refusal(kFirst + "      eval_interval: 3\n"),
                 "\"eval_interval\" belongs in \"eval\", not in \"eval.datasets\""));
  CHECK(contains(set_refusal(kFirst + "      name: again\n"), "duplicate key \"name\""));
}

TEST_CASE("an entry without a name or data is refused once, at the entry") {
  CHECK(set_refusal(kFirst + "    - temperature: 1\n") ==
        "2 errors in the spec:\n"
        "s.yaml:13:7: \"eval.datasets[1].name\" is missing; expected text\n"
        "s.yaml:13:7: \"eval.datasets[1].prompt_data\" is missing; expected text");
  CHECK(set_refusal("    - {nam: a, prompt_data: builtin:sort_digits}\n") ==
        "s.yaml:11:8: unknown key \"nam\" in \"eval.datasets\" (did you mean \"name\"?)");
}

TEST_CASE("what is no list of sections is refused where it stands") {
  CHECK(set_refusal("    3\n") ==
        "s.yaml:11:5: \"eval.datasets\" must be a list of sections (\"- name: ...\"), found \"3\"");
  CHECK(contains(set_refusal("    {name: a}\n"), "found a mapping"));
  CHECK(set_refusal(kFirst + "    - second\n") ==
        "s.yaml:13:7: \"eval.datasets[1]\" must be a section of keys (\"name: ...\"), found \"second\"");
  CHECK(contains(set_refusal("    # all commented out\n"), "there is nothing to evaluate on"));
}

TEST_CASE("names are told apart and safe as a metric") {
  CHECK(contains(set_refusal(kFirst + kFirst),
                 "s.yaml:13:13: two data sets are named \"first\" (eval.datasets[0] and eval.datasets[1])"));
  CHECK(contains(set_refusal("    - {name: a b, prompt_data: builtin:sort_digits}\n"), "found \"a b\""));
  CHECK(contains(set_refusal("    - {name: " + std::string(65, 'x') + ", prompt_data: builtin:sort_digits}\n"),
                 "must be at most 64 letters"));
}

TEST_CASE("several answers to a prompt need a temperature") {
  CHECK(contains(set_refusal(kFirst + "      n_samples_per_eval_prompt: 4\n      temperature: 0\n"),
                 "s.yaml:13:34: \"eval.datasets[0].n_samples_per_eval_prompt\" is 4, but at temperature 0 all answers "
                 "to a prompt are the same; set \"eval.datasets[0].temperature\" above 0"));
  // An inherited value is refused once, where it was written.
  const std::string message = set_refusal(kFirst + "    - {name: b, prompt_data: builtin:sort_digits}\n",
                                          {"eval.n_samples_per_eval_prompt=4", "eval.temperature=0", "eval.top_k=0"});
  CHECK(contains(message, "2 errors in the spec"));
  CHECK(contains(message, "--set eval.n_samples_per_eval_prompt=4: \"eval.n_samples_per_eval_prompt\" is 4"));
  CHECK(contains(message, "--set eval.top_k=0: \"eval.top_k\" must be -1"));
}

TEST_CASE("an override replaces the whole list, and its entries inherit anew") {
  const std::string sets = kFirst + "      temperature: 2\n      max_response_len: 1\n";
  const std::vector<EvalDataset> replaced =
      parse(kSound + kEval + sets, "s.yaml", {"eval.datasets=[{name: z, prompt_data: builtin:sort_digits}]"})
          .eval.datasets;
  REQUIRE(replaced.size() == 1);
  CHECK(replaced[0] == EvalDataset{"z", "builtin:sort_digits", std::nullopt, 256, 1, 0.5, 1.0, -1, 3});
  CHECK(contains(set_refusal(sets, {"eval.datasets=[{name: z}]"}),
                 "--set eval.datasets=[{name: z}]: \"eval.datasets[0].prompt_data\" is missing"));
}

TEST_CASE("evaluations and training know the same rewards") {
  for (const std::string reward : {"position_match", "exact_match"}) {
    CHECK(sound_with({"reward.type=" + reward, "eval.reward=" + reward}).eval.reward == reward);
    CHECK(with_sets(kFirst + "      reward: " + reward + "\n").eval.datasets[0].reward == reward);
  }
}
