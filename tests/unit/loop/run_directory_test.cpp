#include "loop/run_directory.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "base/error.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

void finish_checkpoint(const RunDirectory& directory, int64_t step, int64_t keep,
                       std::optional<int64_t> keep_every = {}) {
  make_directories(directory.checkpoint_aside(step) / "model");
  write_file_atomic(directory.checkpoint_aside(step) / "model" / "x", std::to_string(step));
  directory.publish_checkpoint(step, keep, keep_every);
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

TEST_CASE("checkpoints of every so many steps stay, whatever is newer") {
  const TempDir folder;
  const RunDirectory directory(folder.path());
  for (const int64_t step : {10, 15, 20, 25, 30, 35}) finish_checkpoint(directory, step, 1, 10);
  std::vector<std::string> left;
  for (const fs::path& path : finished_checkpoints(directory.root())) left.push_back(path.filename().string());
  CHECK(left == std::vector<std::string>{"step_000035", "step_000030", "step_000020", "step_000010"});
}

TEST_CASE("a checkpoint of a step that an earlier attempt had reached is replaced") {
  const TempDir folder;
  const RunDirectory directory(folder.path());
  finish_checkpoint(directory, 5, 2);
  write_file_atomic(directory.checkpoint(5) / "of_the_earlier_attempt", "x");
  finish_checkpoint(directory, 5, 2);
  CHECK_FALSE(fs::exists(directory.checkpoint(5) / "of_the_earlier_attempt"));
  CHECK(fs::exists(directory.checkpoint(5) / "model" / "x"));
}

TEST_CASE("an attempt that goes on has logs of its own and leaves no unfinished checkpoint") {
  const TempDir folder;
  {
    const RunDirectory first(folder.path());
    write_file_atomic(first.spec(), "x");
    make_directories(first.checkpoint_aside(3) / "model");
  }
  const RunDirectory second(folder.path(), RunDirectory::Existing::go_on);
  CHECK(second.attempt() == 2);
  CHECK(fs::read_symlink(second.root() / "logs" / "latest") == "attempt_2");
  second.remove_partial_checkpoints();
  CHECK_FALSE(fs::exists(second.checkpoint_aside(3)));
}

TEST_CASE("one vime at a time works in a run directory") {
  const TempDir folder;
  const auto first = std::make_unique<RunDirectory>(folder.path());
  CHECK_THROWS_WITH_AS(RunDirectory(folder.path(), RunDirectory::Existing::go_on),
                       doctest::Contains("another vime is working in"), Error);
}

TEST_CASE("metrics go back to before a step, and a torn line goes with them") {
  const TempDir folder;
  const RunDirectory directory(folder.path());
  CHECK(directory.rewind_metrics(5).empty());
  write_file_atomic(directory.metrics(), "{\"step\":0}\n{\"step\":1,\"a\":2.5}\n{\"step\":2}\n{\"step\":3,\"a");
  const std::vector<Json> kept = directory.rewind_metrics(2);
  REQUIRE(kept.size() == 2);
  CHECK(kept[1]["a"] == 2.5);
  CHECK(read_file(directory.metrics()) == "{\"step\":0}\n{\"step\":1,\"a\":2.5}\n");
}
