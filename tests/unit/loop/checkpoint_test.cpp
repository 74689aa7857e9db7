#include "loop/checkpoint.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "base/error.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

const Identity kIdentity{7, "00ff", {{"vocab_size", 12}, {"hidden_size", 64}}, "policy_loss", "adam", "0a"};

LoopState some_state(int64_t step) {
  LoopState state;
  state.step = step;
  state.optimizer_steps = 2 * step;
  state.weight_version = step;
  state.data = {3, 17};
  state.next_sample = 1000;
  state.next_group = 125;
  state.line = {{"train/loss", 0.1 + 0.2}, {"train/grad_norm", std::nan("")}, {"rollout/samples", 512}};
  return state;
}

fs::path make_checkpoint(const fs::path& run, int64_t step) {
  const fs::path folder = run / "checkpoints" / ("step_00000" + std::to_string(step));
  make_directories(folder / "model");
  make_directories(folder / "trainer");
  write_file_atomic(folder / "model" / "config.json", "{}");
  write_file_atomic(folder / "trainer" / "optimizer.safetensors", "state");
  write_loop_state(folder, "run-1", some_state(step), kIdentity);
  return folder;
}

std::string refusal(const Checkpoint& checkpoint, const Identity& now) {
  try {
    require_same(checkpoint, now);
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.what();
  }
}

}  // namespace

TEST_CASE("where the loop stands reads back exactly, NaN included") {
  const TempDir folder;
  const Checkpoint read = read_checkpoint(make_checkpoint(folder.path(), 4));
  CHECK(read.run_id == "run-1");
  CHECK(read.identity == kIdentity);
  const LoopState expected = some_state(4);
  CHECK(read.state.step == 4);
  CHECK(read.state.optimizer_steps == 8);
  CHECK(read.state.weight_version == 4);
  CHECK(read.state.data == expected.data);
  CHECK(read.state.next_sample == 1000);
  CHECK(read.state.next_group == 125);
  CHECK(read.state.line["train/loss"].get<double>() == 0.1 + 0.2);
  CHECK(std::isnan(read.state.line["train/grad_norm"].get<double>()));
  CHECK(read.state.line["rollout/samples"] == 512);
}

TEST_CASE("a torn checkpoint is passed over with a note that says what is torn") {
  const TempDir folder;
  std::vector<std::string> notes;
  CHECK_FALSE(newest_checkpoint(folder.path(), notes));
  for (int64_t step = 1; step <= 5; ++step) make_checkpoint(folder.path(), step);
  const fs::path checkpoints = folder.path() / "checkpoints";
  fs::resize_file(checkpoints / "step_000005" / "trainer" / "optimizer.safetensors", 3);
  fs::remove(checkpoints / "step_000004" / "model" / "config.json");
  write_file_atomic(checkpoints / "step_000003" / "loop.json", "{\"format\": 1, ");
  const auto found = newest_checkpoint(folder.path(), notes);
  REQUIRE(found);
  CHECK(found->folder.filename() == "step_000002");
  REQUIRE(notes.size() == 3);
  CHECK(notes[0].find("step_000005 is torn and passed over") != std::string::npos);
  CHECK(notes[0].find("optimizer.safetensors: expected 5 bytes, found 3") != std::string::npos);
  CHECK(notes[1].find("config.json: No such file") != std::string::npos);
  CHECK(notes[2].find("loop.json: not JSON") != std::string::npos);
}

TEST_CASE("a newer format and a folder without loop.json are torn too") {
  const TempDir folder;
  const fs::path checkpoint = make_checkpoint(folder.path(), 1);
  write_file_atomic(checkpoint / "loop.json", "{\"format\": 2}");
  CHECK_THROWS_WITH_AS(read_checkpoint(checkpoint), doctest::Contains("expected format 1, found 2"), Error);
  fs::remove(checkpoint / "loop.json");
  CHECK_THROWS_AS(read_checkpoint(checkpoint), Error);
}

TEST_CASE("a run goes on only with the seed, the data and the model that it began with") {
  const TempDir folder;
  const Checkpoint checkpoint = read_checkpoint(make_checkpoint(folder.path(), 1));
  CHECK(refusal(checkpoint, kIdentity).empty());
  Identity now = kIdentity;
  now.seed = 8;
  CHECK(refusal(checkpoint, now).find("its seed is 7, now it is 8") != std::string::npos);
  now = kIdentity;
  now.data = "0100";
  CHECK(refusal(checkpoint, now).find("the training prompts or their order have changed") != std::string::npos);
  now = kIdentity;
  now.optimizer = "sgd";
  CHECK(refusal(checkpoint, now).find("its optimizer is adam, now it is sgd") != std::string::npos);
  now = kIdentity;
  now.loss_type = "sft";
  CHECK(refusal(checkpoint, now).find("its loss_type is policy_loss, now it is sft") != std::string::npos);
  now = kIdentity;
  now.start = "0b";
  CHECK(refusal(checkpoint, now).find("the weights that training began with") != std::string::npos);
  now = kIdentity;
  now.model["hidden_size"] = 128;
  CHECK(refusal(checkpoint, now).find("the model's hidden_size was 64, now it is 128") != std::string::npos);
}

TEST_CASE("a checkpoint that the disk has no room for is not begun") {
  const TempDir folder;
  require_space(folder.path(), 1, 3);
  try {
    require_space(folder.path(), uint64_t{1} << 62, 3);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::exhausted);
    CHECK(error.message().find("the checkpoint of step 3 needs") == 0);
  }
}
