// Runs on files: model folders, JSONL, reward programs, labels, replays, evaluation alone.
#include <doctest/doctest.h>

#include "base/strings.hpp"
#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

const milliseconds kLong{300000};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Outcome run(const std::string& config, const fs::path& run_dir, const std::vector<std::string>& sets,
            const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {vime_binary(), "run", config, "--run-dir", run_dir.string()};
  for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, kLong);
}

const std::string kWordProblems = VIME_SOURCE_DIR "/configs/word_problems.yaml";
const std::string kSupervised = VIME_SOURCE_DIR "/configs/word_problems_sft.yaml";
// The configs name their files from the project's folder; tests run elsewhere.
const std::vector<std::string> kPaths = {"data.prompt_data=" VIME_SOURCE_DIR "/configs/data/word_problems_train.jsonl",
                                         "eval.datasets=[{name: test, prompt_data: " VIME_SOURCE_DIR
                                         "/configs/data/word_problems_test.jsonl, num_samples: 40}]",
                                         "eval.reward=numeric"};

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

// Writes a reward program in sh and returns the spec's list for it.
std::string program(const fs::path& path, const std::string& text) {
  write_file_atomic(path, text);
  return "reward.command=[sh, " + path.string() + "]";
}

}  // namespace

TEST_CASE(
    "supervised training on labels learns the word problems, and reinforcement with a program goes on from its model") {
  const TempDir folder;
  const Outcome taught = run(kSupervised, folder.path() / "sft", with(kPaths, {"rollout.num_rollout=120"}));
  CAPTURE(taught.err);
  REQUIRE(taught.status == 0);
  const std::vector<Json> steps = read_lines(folder.path() / "sft/metrics.jsonl");
  REQUIRE(steps.size() == 121);
  CHECK(steps.back().at("train/loss").get<double>() < 0.7 * steps[1].at("train/loss").get<double>());
  CHECK_FALSE(steps.back().contains("rollout/raw_reward"));
  CHECK(steps.back().at("eval/test").get<double>() > 0.1);

  const std::string model = (folder.path() / "sft/checkpoints/latest/model").string();
  const Outcome reinforced =
      run(kWordProblems, folder.path() / "rl",
          with(kPaths, {"model.path=" + model, "rollout.num_rollout=3", "trainer.lr_warmup_iters=0",
                        "reward.command=[python3, " VIME_SOURCE_DIR "/configs/rewards/word_problem.py]"}),
          {"--ci-test"});
  CAPTURE(reinforced.err);
  REQUIRE(reinforced.status == 0);
  // The policy that reinforcement begins with is the one that supervision ended with.
  CHECK(read_lines(folder.path() / "rl/metrics.jsonl").front().at("eval/test") == steps.back().at("eval/test"));
  CHECK(read_lines(folder.path() / "rl/metrics.jsonl").back().at("rollout/without_reward") == 0);
  for (const Json& sample : read_lines(folder.path() / "rl/rollouts/rollout_000000.jsonl")) {
    const double reward = sample.at("reward").get<double>();
    CHECK((reward == 0.0 || reward == 0.1 || reward == 1.0));
  }
  CHECK(all_gone(run_id_of(folder.path() / "rl")));

  const Outcome alone = run_vime({"eval", kWordProblems, "--model", model, "--json", "--set", kPaths[0], "--set",
                                  kPaths[1], "--set", "eval.reward=numeric"},
                                 kLong);
  CAPTURE(alone.err);
  REQUIRE(alone.status == 0);
  const Json report = parse_json(alone.out);
  CHECK(report.at("eval").at(0).at("score") == steps.back().at("eval/test"));
}

TEST_CASE(
    "a reward program that dies, hangs or talks nonsense costs its samples their reward, and too many end the run") {
  const TempDir folder;
  const std::vector<std::string> small =
      with(kPaths, {"model.path=null", "model.preset=tiny", "model.tokenizer=byte", "rollout.num_rollout=1",
                    "eval.eval_interval=null", "rollout.rollout_batch_size=4", "reward.startup_timeout=2s",
                    "trainer.lr_warmup_iters=0"});
  // Answers 0.5 to every call, but to those of some samples what `cases` says.
  const auto answers = [&folder](const std::string& name, const std::string& cases) {
    return program(folder.path() / name,
                   "while read -r line; do\n"
                   "  id=${line#*\\\"id\\\":}; id=${id%%,*}; sample=${line##*\\\"sample\\\":}; sample=${sample%%\\}*}\n"
                   "  case $sample in " +
                       cases +
                       " *) r=0.5;; esac\n"
                       "  echo \"{\\\"id\\\": $id, \\\"reward\\\": $r}\"\n"
                       "done\n");
  };
  const std::string some = answers("some.sh", "3) r=NaN;; 4) r='\"one\"';;");
  const Outcome tolerated =
      run(kWordProblems, folder.path() / "a", with(small, {some, "reward.max_missing_ratio=0.1"}));
  CAPTURE(tolerated.err);
  REQUIRE(tolerated.status == 0);
  const Json line = read_lines(folder.path() / "a/metrics.jsonl").back();
  CHECK(line.at("rollout/without_reward") == 2);
  CHECK(line.at("reward/missing/not_finite") == 1);
  CHECK(line.at("reward/missing/not_numeric") == 1);
  CHECK(line.at("rollout/raw_reward") == 0.5);
  CHECK(line.at("rollout/zero_std_groups") == 4);

  // Of two bad answers either may come first, and the first ends the run: one alone is always told in the same words.
  const std::string one = answers("one.sh", "3) r=NaN;;");
  const Outcome strict = run(kWordProblems, folder.path() / "b", with(small, {one, "reward.max_missing_ratio=0.01"}));
  CAPTURE(strict.err);
  CHECK(strict.status == 4);
  CHECK(contains(strict.err,
                 "1 of 32 samples got no reward (1 not_finite), more than reward.max_missing_ratio 0.01 allows; the "
                 "first: \"reward\" is NaN, infinite, or larger than any number"));

  const Outcome absent = run(kWordProblems, folder.path() / "c", with(small, {"reward.command=[/no/such/program]"}));
  CHECK(absent.status == 4);
  CHECK(contains(absent.err, "/no/such/program"));

  const Outcome dead = run(kWordProblems, folder.path() / "d",
                           with(small, {program(folder.path() / "dead.sh", "echo cannot find my data >&2\nexit 9\n")}));
  CHECK(dead.status == 4);
  CHECK(contains(dead.err, "exited with status 9"));
  CHECK(contains(dead.err, "cannot find my data"));
  for (const char* name : {"a", "b", "c", "d"}) CHECK(all_gone(run_id_of(folder.path() / name)));
}

TEST_CASE("rollouts that were kept and are replayed give the same weights, and each half runs alone") {
  const TempDir folder;
  const std::vector<std::string> small = {"rollout.num_rollout=3", "eval.num_samples=16"};
  const std::string kept = (folder.path() / "kept").string();
  const Outcome first = run(kQuickstart, folder.path() / "first", with(small, {"debug.save_rollout=" + kept}));
  CAPTURE(first.err);
  REQUIRE(first.status == 0);
  const Outcome replay = run(kQuickstart, folder.path() / "replay", with(small, {"debug.load_rollout=" + kept}));
  CAPTURE(replay.err);
  REQUIRE(replay.status == 0);
  CHECK(final_weights(folder.path() / "replay") == final_weights(folder.path() / "first"));
  CHECK_FALSE(fs::exists(folder.path() / "replay/logs/latest/engine-0.log"));
  const Outcome more =
      run(kQuickstart, folder.path() / "more", with(small, {"debug.load_rollout=" + kept, "rollout.num_rollout=4"}));
  CHECK(more.status == 2);
  CHECK(contains(more.err, "rollout_000003.safetensors is missing"));
  CHECK(contains(more.err, "set rollout.num_rollout to 3"));

  const std::string model = (folder.path() / "first/checkpoints/latest/model").string();
  const Outcome alone = run(kQuickstart, folder.path() / "alone",
                            with(small, {"debug.rollout_only=true", "model.path=" + model, "model.preset=null"}));
  CAPTURE(alone.err);
  REQUIRE(alone.status == 0);
  CHECK_FALSE(fs::exists(folder.path() / "alone/logs/latest/trainer-0.log"));
  CHECK(fs::exists(folder.path() / "alone/rollouts/rollout_000002.jsonl"));
  // The engines read the very weights that the first run's evaluation ended with.
  CHECK(read_lines(folder.path() / "alone/metrics.jsonl").front().at("eval/sort_digits/heldout") ==
        read_lines(folder.path() / "first/metrics.jsonl").back().at("eval/sort_digits/heldout"));
}

TEST_CASE("models of every family are trained from their folders, with more rows than the tokenizer has tokens") {
  for (const std::string model : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(model);
    const TempDir folder;
    const Outcome outcome = run(kQuickstart, folder.path() / "run",
                                {"model.path=" VIME_TEST_DATA "/models/" + model, "model.preset=null",
                                 "rollout.num_rollout=2", "eval.num_samples=8"},
                                {"--ci-test"});
    CAPTURE(outcome.err);
    CHECK(outcome.status == 0);
    CHECK(read_json(folder.path() / "run/checkpoints/latest/model/config.json").at("vocab_size") == 160);
    CHECK(final_weights(folder.path() / "run").size() > 1000);
  }
}
