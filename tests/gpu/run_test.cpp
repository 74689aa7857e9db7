// Whole runs of the built binary on GPUs: a few steps each, with every self-check on.
#include <doctest/doctest.h>

#include <algorithm>

#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"
#include "gpu/device.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

const milliseconds kLong{300000};
const std::string kConfig = VIME_SOURCE_DIR "/configs/quickstart-gpu.yaml";

// A small model, four digits, three rollouts.
std::vector<std::string> short_run(const fs::path& run_dir, const std::vector<std::string>& overrides) {
  std::vector<std::string> arguments = {vime_binary(), "run", kConfig, "--ci-test", "--run-dir", run_dir.string()};
  std::vector<std::string> all = {"model.preset=tiny",
                                  "data.prompt_data=builtin:sort_digits",
                                  "rollout.num_rollout=3",
                                  "rollout.rollout_batch_size=16",
                                  "trainer.global_batch_size=64",
                                  "eval.prompt_data=builtin:sort_digits/heldout",
                                  "eval.num_samples=16",
                                  "trainer.lr_warmup_iters=0"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  for (const std::string& one : all) arguments.insert(arguments.end(), {"--set", one});
  return arguments;
}

Outcome run(const fs::path& run_dir, const std::vector<std::string>& overrides) {
  Outcome outcome = run_program(short_run(run_dir, overrides), kLong);
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(all_gone(run_id_of(run_dir)));
  return outcome;
}

// The gap between the trainer's and the engine's log-probs, the largest of the run's steps.
double largest_gap(const fs::path& run_dir) {
  double largest = 0;
  for (const Json& line : read_lines(run_dir / "metrics.jsonl")) {
    if (line.at("step") == 0) continue;
    largest = std::max(largest, line.at("train/train_rollout_logprob_abs_diff").get<double>());
  }
  return largest;
}

}  // namespace

TEST_CASE("trainer and engine on one GPU take turns, in both types") {
  const TempDir folder;
  run(folder.path() / "bf16", {});
  CHECK(largest_gap(folder.path() / "bf16") < 0.02);
  run(folder.path() / "fp32", {"trainer.dtype=float32"});
  CHECK(largest_gap(folder.path() / "fp32") < 1e-4);
}

TEST_CASE("trainer and engine that stay on the GPU side by side come to the same weights as those that take turns") {
  const TempDir folder;
  run(folder.path() / "turns", {});
  run(folder.path() / "together", {"offload.train=false", "offload.rollout=false"});
  CHECK(final_weights(folder.path() / "turns") == final_weights(folder.path() / "together"));
}

TEST_CASE("a deterministic run has next to no gap, and gives the same weights twice") {
  const TempDir folder;
  run(folder.path() / "first", {"deterministic=true"});
  run(folder.path() / "second", {"deterministic=true"});
  CHECK(largest_gap(folder.path() / "first") < 1e-6);
  CHECK(final_weights(folder.path() / "first") == final_weights(folder.path() / "second"));
}

TEST_CASE("a run that goes on from its checkpoint ends where the unbroken one does") {
  const TempDir folder;
  run(folder.path() / "part", {"deterministic=true", "rollout.num_rollout=2", "trainer.lr_decay_iters=3"});
  run(folder.path() / "whole", {"deterministic=true", "trainer.lr_decay_iters=3"});
  std::vector<std::string> rest = short_run(folder.path() / "part", {"deterministic=true", "trainer.lr_decay_iters=3"});
  rest.push_back("--resume");
  const Outcome outcome = run_program(rest, kLong);
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(final_weights(folder.path() / "part") == final_weights(folder.path() / "whole"));
}

TEST_CASE("on two GPUs: disaggregated, tensor parallel, data parallel, pipelined, context parallel, an engine of two") {
  if (gpu::device_count() < 2) {
    MESSAGE("not run: there is one GPU");
    return;
  }
  const TempDir folder;
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"apart", {"placement.colocate=false"}},
      {"tp", {"trainer.tensor_model_parallel_size=2"}},
      {"dp", {}},
      {"pp", {"trainer.pipeline_model_parallel_size=2"}},
      {"cp", {"trainer.context_parallel_size=2"}},
      {"engine of two", {"placement.rollout_num_gpus_per_engine=2"}}};
  for (auto [name, overrides] : cases) {
    CAPTURE(name);
    if (name != "apart") {
      overrides.push_back("placement.actor_num_gpus_per_node=2");
      overrides.push_back("placement.rollout_num_gpus=2");
    }
    run(folder.path() / name, overrides);
    CHECK(largest_gap(folder.path() / name) < 0.02);
  }
}
