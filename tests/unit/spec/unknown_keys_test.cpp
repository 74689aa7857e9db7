#include <algorithm>

#include "base/strings.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

TEST_CASE("a misspelt key is refused with line, column and the nearest name") {
  CHECK(refusal(kSound + "trainer:\n  learnig_rate: 0.1\n") ==
        "s.yaml:7:3: unknown key \"learnig_rate\" in \"trainer\" (did you mean \"lr\"?)");
  CHECK(refusal(kSound + "trainer:\n  glbal_batch_size: 8\n") ==
        "s.yaml:7:3: unknown key \"glbal_batch_size\" in \"trainer\" (did you mean \"global_batch_size\"?)");
  CHECK(contains(refusal_with({"rollout.n_sample_per_prompt=8"}),
                 "--set rollout.n_sample_per_prompt=8: unknown key \"n_sample_per_prompt\" in \"rollout\" (did you "
                 "mean \"n_samples_per_prompt\"?)"));
  CHECK(contains(refusal_with({"trainr.lr=1"}), "unknown key \"trainr\" at the top level (did you mean \"trainer\"?)"));
}

TEST_CASE("a misspelt required key is reported once, not as missing too") {
  std::string text = kSound;
  text.replace(text.find("num_rollout"), 11, "num_rolout");
  const std::string message = refusal(text);
  CHECK(contains(message, "(did you mean \"num_rollout\"?)"));
  CHECK_FALSE(contains(message, "missing"));
  text = kSound;
  text.replace(text.find("rollout:"), 8, "rolout: ");
  CHECK(refusal(text) == "s.yaml:5:1: unknown key \"rolout\" at the top level (did you mean \"rollout\"?)");
}

TEST_CASE("names of other trainers are answered with vime's") {
  CHECK(contains(refusal_with({"trainer.learning_rate=1"}), "(vime calls it \"lr\")"));
  CHECK(contains(refusal_with({"rollout.max_new_tokens=1"}), "(vime calls it \"rollout_max_response_len\")"));
  CHECK(contains(refusal_with({"trainer.max_new_tokens=1"}), "(vime calls it \"rollout.rollout_max_response_len\")"));
  CHECK(contains(refusal_with({"rollout.n=1"}), "(vime calls it \"n_samples_per_prompt\")"));
  CHECK(contains(refusal_with({"trainer.batch_size=1"}),
                 "(vime calls it \"rollout.rollout_batch_size\" or \"global_batch_size\")"));
}

TEST_CASE("a key at the wrong depth is sent where it belongs") {
  CHECK(contains(refusal_with({"lr=1"}), "\"lr\" belongs in \"trainer\", not at the top level"));
  CHECK(contains(refusal_with({"trainer.seed=1"}), "\"seed\" belongs at the top level, not in \"trainer\""));
  CHECK(contains(refusal_with({"trainer.temperature=1"}), "\"temperature\" belongs in \"eval\", not in \"trainer\""));
  CHECK(contains(refusal_with({"rollout.temperature=1"}), "did you mean \"rollout_temperature\"?"));
  CHECK(contains(refusal(kSound + "trainer: {eval: {eval_interval: 3}}\n"),
                 "\"eval\" is a section and belongs at the top level, not in \"trainer\""));
  CHECK(contains(refusal_with({"reward.prompt_data=x"}), "\"prompt_data\" belongs in \"data\" or in \"eval\""));
}

TEST_CASE("flags of slime without a key of their own say why, and what there is instead") {
  CHECK(contains(refusal_with({"algorithm.use_kl_loss=true"}),
                 "unknown key \"use_kl_loss\" in \"algorithm\": an algorithm.kl_loss_coef above 0 turns it on"));
  CHECK(contains(refusal_with({"offload_train=true"}), "(vime calls it \"offload.train\")"));
}

TEST_CASE("an unknown key that is near nothing lists the known ones") {
  CHECK(contains(refusal_with({"ci.zzzzqqqq=1"}), "(known there: kl_tolerance, logprob_gap_tolerance)"));
}

TEST_CASE("all errors come at once, in the order of the file, overrides last") {
  const std::string message =
      refusal("seed: x\nmodel: {preset: tiny, path: a/b}\ntrainer:\n  lr: -1\n  nonsense_key: 1\n",
              {"foo", "trainer.clip_grad=a"});
  const std::vector<std::string> lines = vime::split(message, '\n');
  REQUIRE(lines.size() > 5);
  CHECK(lines[0] == std::to_string(lines.size() - 1) + " errors in the spec:");
  const auto line_with = [&lines](const std::string& part) {
    return std::find_if(lines.begin(), lines.end(), [&part](const std::string& line) { return contains(line, part); }) -
           lines.begin();
  };
  CHECK(contains(lines.at(static_cast<size_t>(line_with("\"seed\" must be"))), "s.yaml:1:7: "));
  CHECK(contains(lines.at(static_cast<size_t>(line_with("are both given"))), "s.yaml:2:17: "));
  CHECK(contains(lines.at(static_cast<size_t>(line_with("\"trainer.lr\" must"))), "s.yaml:4:7: "));
  CHECK(contains(lines.at(static_cast<size_t>(line_with("nonsense_key"))), "s.yaml:5:3: "));
  CHECK(contains(message, "\"data.prompt_data\" is missing"));
  CHECK(contains(message, "\"rollout.num_rollout\" is missing"));
  CHECK(line_with("trainer.lr") < line_with("nonsense_key"));
  CHECK(line_with("nonsense_key") < line_with("--set foo: expected section.key=value"));
  CHECK(line_with("--set foo") < line_with("--set trainer.clip_grad=a: "));
}

TEST_CASE("a thousand errors are counted, fifty are listed") {
  std::string text = kSound;
  for (int i = 0; i < 1000; ++i) text += "wrong" + std::to_string(i) + ": 1\n";
  const std::string message = refusal(text);
  CHECK(contains(message, "1000 errors in the spec:\n"));
  CHECK(contains(message, "\nand 950 more"));
  CHECK(vime::split(message, '\n').size() == 52);
}

TEST_CASE("overrides win over the file and the last one over earlier ones") {
  CHECK(sound_with({"rollout.num_rollout=7", "rollout.num_rollout=9"}).rollout.num_rollout == 9);
  CHECK(sound_with({"trainer={lr: 0.5, clip_grad: 2}"}).trainer.clip_grad == 2);
  CHECK(sound_with({"placement.nodes=[4, 2]"}).placement.nodes == std::vector<int64_t>{4, 2});
  for (const std::string wrong : {"", "=", "=1", "trainer", "trainer.=1", ".lr=1", "a.b.c=1"}) {
    CAPTURE(wrong);
    CHECK(contains(refusal_with({wrong}), "expected section.key=value"));
  }
  CHECK(contains(refusal_with({"trainer.lr="}), "found nothing"));
  CHECK(contains(refusal_with({"trainer.lr=&a 1"}), "--set trainer.lr=&a 1: anchors and aliases"));
  CHECK(contains(refusal_with({"trainer.lr=1\x1b[2J"}), "--set trainer.lr=1?[2J: control character 27"));
}
