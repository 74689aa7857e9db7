#include "loop/run_directory.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

void finish_checkpoint(const RunDirectory& directory, int64_t step, int64_t keep) {
  make_directories(directory.checkpoint_aside(step) / "model");
  write_file_atomic(directory.checkpoint_aside(step) / "model" / "x", std::to_string(step));
  directory.publish_checkpoint(step, keep);
}

}  // namespace

TEST_CASE("a new run directory has its folders and logs/latest") {
  const TempDir folder;
  const RunDirectory directory(folder.path() / "a" / "run");
  CHECK(fs::is_directory(directory.logs()));
  CHECK(fs::read_symlink(directory.root() / "logs" / "latest") == "attempt_1");
  CHECK(directory.rollout(12).filename() == "rollout_000012");
  CHECK(directory.checkpoint(10).filename() == "step_000010");
}

TEST_CASE("a folder that holds a run, is a file or cannot be written is refused") {
  const TempDir folder;
  const RunDirectory directory(folder.path());
  write_file_atomic(directory.spec(), "x");
  CHECK_THROWS_WITH_AS(RunDirectory{folder.path()}, doctest::Contains("already holds a run"), Error);
  CHECK_THROWS_AS(RunDirectory{directory.spec()}, Error);
  CHECK_THROWS_AS(RunDirectory{directory.spec() / "below"}, Error);
}

TEST_CASE("a checkpoint appears whole, latest points to it, and the newest are kept") {
  const TempDir folder;
  const RunDirectory directory(folder.path());
  for (const int64_t step : {5, 10, 100}) finish_checkpoint(directory, step, 2);
  CHECK_FALSE(fs::exists(directory.checkpoint(5)));
  CHECK(fs::exists(directory.checkpoint(10)));
  CHECK(read_file(directory.root() / "checkpoints" / "latest" / "model" / "x") == "100");
  CHECK_FALSE(fs::exists(directory.checkpoint_aside(100)));
}

TEST_CASE("old rollouts go, new ones stay") {
  const TempDir folder;
  const RunDirectory directory(folder.path());
  for (int64_t id = 0; id < 5; ++id) {
    for (const char* extension : {".jsonl", ".safetensors"})
      write_file_atomic(directory.rollout(id).string() + extension, "x");
    directory.prune_rollouts(id, 2);
  }
  CHECK_FALSE(fs::exists(directory.rollout(2).string() + ".jsonl"));
  CHECK_FALSE(fs::exists(directory.rollout(2).string() + ".safetensors"));
  CHECK(fs::exists(directory.rollout(3).string() + ".jsonl"));
  CHECK(fs::exists(directory.rollout(4).string() + ".safetensors"));
}
