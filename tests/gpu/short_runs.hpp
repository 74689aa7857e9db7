// Runs of the built binary on GPUs, a few steps each, with every self-check on.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"

namespace vime::e2e {

inline const milliseconds kLong{300000};
inline const std::string kConfig = VIME_SOURCE_DIR "/configs/quickstart-gpu.yaml";

// A small model, four digits, three rollouts.
inline std::vector<std::string> short_run(const fs::path& run_dir, const std::vector<std::string>& overrides) {
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

inline Outcome run(const fs::path& run_dir, const std::vector<std::string>& overrides) {
  Outcome outcome = run_program(short_run(run_dir, overrides), kLong);
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(all_gone(run_id_of(run_dir)));
  return outcome;
}

// The gap between the trainer's and the engine's log-probs, the largest of the run's steps.
inline double largest_gap(const fs::path& run_dir) {
  double largest = 0;
  for (const Json& line : read_lines(run_dir / "metrics.jsonl")) {
    if (line.at("step") == 0) continue;
    largest = std::max(largest, line.at("train/train_rollout_logprob_abs_diff").get<double>());
  }
  return largest;
}

}  // namespace vime::e2e
