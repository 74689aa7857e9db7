// Runs that stop and go on: whatever the step, the resumed run is the unbroken one.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdio>
#include <map>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

const milliseconds kLong{300000};
constexpr int kSteps = 10;

// Ten small steps with everything that a checkpoint must carry: a schedule, moments, shuffled data over more than one
// epoch (a slice of 40 prompts, 8 a step), several optimizer steps a rollout, a reference model, an evaluation.
std::vector<std::string> arguments_of(const fs::path& run_dir, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {vime_binary(), "run", kQuickstart, "--run-dir", run_dir.string()};
  for (const char* set : {"rollout.num_rollout=10", "rollout.rollout_batch_size=8", "rollout.n_samples_per_prompt=4",
                          "trainer.global_batch_size=16", "trainer.lr_decay_style=cosine", "trainer.lr_warmup_iters=3",
                          "algorithm.kl_loss_coef=0.01", "algorithm.kl_loss_type=k3", "eval.eval_interval=3",
                          "eval.num_samples=16", "checkpoint.save_interval=1", "checkpoint.keep_last=20"}) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  arguments.insert(arguments.end(), {"--set", "data.prompt_data=" + (run_dir.parent_path() / "digits.jsonl").string(),
                                     "--set", "model.tokenizer=char:0123456789="});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void write_digits(const fs::path& folder, int count = 40) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int a = i % 10, b = (7 * i + 3) % 10;
    text += "{\"prompt\": \"" + std::to_string(a) + std::to_string(b) + "=\", \"label\": \"" +
            std::to_string(std::min(a, b)) + std::to_string(std::max(a, b)) + "\"}\n";
  }
  write_file_atomic(folder / "digits.jsonl", text);
}

// The run directory as it was after step k: without later checkpoints.
void cut_after(const fs::path& run_dir, int step) {
  for (int later = step + 1; later <= kSteps; ++later) {
    char name[32];
    std::snprintf(name, sizeof name, "step_%06d", later);
    fs::remove_all(run_dir / "checkpoints" / name);
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a run that stops after any step and goes on is the unbroken run: prompts, versions, metrics, weights") {
  const TempDir folder;
  write_digits(folder.path());
  const fs::path whole = folder.path() / "whole";
  const Outcome outcome = run_program(arguments_of(whole), kLong);
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  const std::vector<Json> metrics = timeless_metrics(whole);
  REQUIRE(metrics.size() == kSteps + 1);
  const std::string last_rollout = read_file(whole / "rollouts/rollout_000009.jsonl");
  for (int step = 1; step < kSteps; ++step) {
    CAPTURE(step);
    const fs::path part = folder.path() / "part";
    fs::copy(whole, part, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    cut_after(part, step);
    const Outcome resumed = run_program(arguments_of(part, {"--resume"}), kLong);
    CAPTURE(resumed.err);
    CHECK(resumed.status == 0);
    CHECK(contains(resumed.err, "going on from"));
    CHECK(timeless_metrics(part) == metrics);
    CHECK(final_weights(part) == final_weights(whole));
    CHECK(read_file(part / "rollouts/rollout_000009.jsonl") == last_rollout);
    CHECK(fs::read_symlink(part / "logs/latest") == "attempt_2");
    fs::remove_all(part);
  }
}

TEST_CASE("a run that is killed or interrupted at some step and goes on ends as the unbroken one") {
  const TempDir folder;
  write_digits(folder.path());
  const fs::path whole = folder.path() / "whole", broken = folder.path() / "broken";
  REQUIRE(run_program(arguments_of(whole), kLong).status == 0);
  Program first(arguments_of(broken));
  wait_for_steps(broken, 3);
  first.send_signal(SIGKILL);
  first.wait(milliseconds(30000));
  CHECK(all_gone(run_id_of(broken)));
  Program second(arguments_of(broken, {"--resume"}));
  wait_for_steps(broken, 6);
  second.send_signal(SIGINT);
  CHECK(second.wait(milliseconds(30000)).status == 130);
  const Outcome last = run_program(arguments_of(broken, {"--resume"}), kLong);
  CAPTURE(last.err);
  CHECK(last.status == 0);
  CHECK(timeless_metrics(broken) == timeless_metrics(whole));
  CHECK(final_weights(broken) == final_weights(whole));
  CHECK(read_json(broken / "summary.json").at("status") == "ok");
  for (const auto& entry : fs::directory_iterator(broken / "checkpoints")) {
    CHECK(entry.path().extension() != ".partial");
  }
  // Once more there is nothing to do.
  const Outcome again = run_program(arguments_of(broken, {"--resume"}), kLong);
  CHECK(again.status == 0);
  CHECK(contains(again.err, "nothing to do"));
}

TEST_CASE("a torn checkpoint is passed over with a note, and contents that are not those that were saved are refused") {
  const TempDir folder;
  write_digits(folder.path());
  const fs::path run = folder.path() / "run";
  REQUIRE(run_program(arguments_of(run), kLong).status == 0);
  const std::string weights = final_weights(run);
  cut_after(run, 5);
  fs::resize_file(run / "checkpoints/step_000005/trainer/optimizer.safetensors", 1000);
  const Outcome resumed = run_program(arguments_of(run, {"--resume"}), kLong);
  CAPTURE(resumed.err);
  CHECK(resumed.status == 0);
  CHECK(contains(resumed.err, "step_000005 is torn and passed over"));
  CHECK(contains(resumed.err, "going on from " + (run / "checkpoints/step_000004").string()));
  CHECK(final_weights(run) == weights);

  cut_after(run, 7);
  const fs::path optimizer = run / "checkpoints/step_000007/trainer/optimizer.safetensors";
  std::string bytes = read_file(optimizer);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  write_file_atomic(optimizer, bytes);
  const Outcome flipped = run_program(arguments_of(run, {"--resume"}), kLong);
  CHECK(flipped.status == 4);
  CHECK(contains(flipped.err, "the contents are not those that were saved"));
}

TEST_CASE("where no checkpoint is whole the run is refused, and newer torn ones do not stand in the way") {
  const TempDir folder;
  write_digits(folder.path());
  const fs::path run = folder.path() / "run";
  REQUIRE(run_program(arguments_of(run, {"--set", "checkpoint.keep_last=3"}), kLong).status == 0);
  fs::remove_all(run / "checkpoints/step_000009");
  fs::resize_file(run / "checkpoints/step_000010/model/model.safetensors", 100);
  // Fewer steps than the torn checkpoint has: what is written now must not lose its place to it.
  const Outcome shorter = run_program(arguments_of(run, {"--resume", "--set", "rollout.num_rollout=9", "--set",
                                                         "checkpoint.keep_last=1", "--set", "trainer.lr=1e-4"}),
                                      kLong);
  CAPTURE(shorter.err);
  CHECK(shorter.status == 0);
  CHECK(contains(shorter.err, "changed since: trainer.lr: 0.002 -> 1e-04"));
  CHECK_FALSE(fs::exists(run / "checkpoints/step_000010"));
  CHECK(fs::exists(run / "checkpoints/latest/model/model.safetensors"));
  fs::resize_file(run / "checkpoints/step_000009/model/model.safetensors", 100);
  const std::string before = read_file(run / "metrics.jsonl");
  const Outcome refused = run_program(arguments_of(run, {"--resume"}), kLong);
  CHECK(refused.status == 2);
  CHECK(contains(refused.err, "none of the checkpoints in"));
  CHECK(read_file(run / "metrics.jsonl") == before);
}

TEST_CASE("a run that fails keeps the steps that it had trained, and its summary is of this attempt") {
  const TempDir folder;
  write_digits(folder.path());
  const fs::path run = folder.path() / "run";
  // Answers the samples of the first three rollouts, then never again with a number.
  write_file_atomic(
      folder.path() / "reward.sh",
      "while read -r line; do\n"
      "  id=${line#*\\\"id\\\":}; id=${id%%,*}; sample=${line##*\\\"sample\\\":}; sample=${sample%%\\}*}\n"
      "  if [ $sample -lt 96 ]; then r=0.5; else r=null; fi\n"
      "  echo \"{\\\"id\\\": $id, \\\"reward\\\": $r}\"\n"
      "done\n");
  std::vector<std::string> sets = {"--set", "checkpoint.save_interval=null",
                                   "--set", "reward.type=command",
                                   "--set", "reward.command=[sh, " + (folder.path() / "reward.sh").string() + "]"};
  const Outcome failed = run_program(arguments_of(run, sets), kLong);
  CAPTURE(failed.err);
  CHECK(failed.status == 4);
  CHECK(contains(failed.err, "got no reward"));
  CHECK(fs::read_symlink(run / "checkpoints/latest") == "step_000003");
  CHECK(contains(failed.err, "goes on from step_000003"));
  sets.insert(sets.end(), {"--resume", "--set", "reward.max_missing_ratio=1"});
  const Outcome resumed = run_program(arguments_of(run, sets), kLong);
  CAPTURE(resumed.err);
  CHECK(resumed.status == 0);
  // Rollouts in which nothing was scored are gone over as well.
  sets.insert(sets.end(), {"--set", "rollout.num_rollout=11"});
  CHECK(run_program(arguments_of(run, sets), kLong).status == 0);
}

TEST_CASE(
    "other data, another seed or another model is refused before anything starts, another number of ranks is not") {
  const TempDir folder;
  write_digits(folder.path());
  const fs::path run = folder.path() / "run";
  REQUIRE(run_program(arguments_of(run), kLong).status == 0);
  cut_after(run, 6);
  const auto refused = [&](const std::string& set) {
    const Outcome outcome = run_program(arguments_of(run, {"--resume", "--set", set}), kLong);
    CHECK(outcome.status == 2);
    return outcome.err;
  };
  CHECK(contains(refused("seed=77"), "its seed is 1234, now it is 77"));
  CHECK(contains(refused("model.tokenizer=char:0123456789=+"), "the model's vocab_size was 13, now it is 14"));
  write_digits(folder.path(), 41);
  CHECK(contains(refused("seed=1234"), "the training prompts or their order have changed"));
  write_digits(folder.path());

  const Outcome wider = run_program(
      arguments_of(run, {"--resume", "--set", "placement.actor_num_gpus_per_node=4", "--set", "placement.nodes=[4]"}),
      kLong);
  CAPTURE(wider.err);
  CHECK(wider.status == 0);
  // Each prompt once an epoch: 80 of them are two epochs of 40, whoever trained on them.
  std::map<std::string, int> times;
  for (int rollout = 2; rollout < kSteps; ++rollout) {
    char name[64];
    std::snprintf(name, sizeof name, "rollouts/rollout_%06d.jsonl", rollout);
    for (const Json& sample : read_lines(run / name)) ++times[sample.at("prompt_id").dump()];
  }
  int samples = 0;
  for (const auto& [prompt, count] : times) {
    CHECK(count % 4 == 0);
    samples += count;
  }
  CHECK(samples == 8 * 8 * 4);
}
