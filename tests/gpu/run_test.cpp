// Whole runs on one GPU.
#include "gpu/short_runs.hpp"

using namespace vime;
using namespace vime::e2e;

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
