#include "rollout/train_batch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "tensor/safetensors.hpp"
#include "unit/rollout/samples.hpp"

using namespace vime;
using namespace vime::rollout;

namespace {

// Two groups, ragged, with an empty response and a sample without a reward.
std::vector<Sample> mixed_samples() {
  return {make_sample(0, 1, 1.0), make_sample(1, 1, 0.0, {3}, {8}), make_sample(2, 2, 0.5, {3, 4, 5}, {}),
          make_sample(3, 2, std::nullopt, {9}, {1, 2}), make_sample(4, 2, 1.0, {9}, {4, 4, 4, 4})};
}

std::string refusal(const fs::path& path, const std::string& run_id) {
  try {
    read_train_batch(path, run_id);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a batch holds the samples' arrays in the order of their index") {
  std::vector<Sample> samples = mixed_samples();
  std::reverse(samples.begin(), samples.end());
  const TrainBatch batch = make_train_batch(samples, "run", 3, 4);
  CHECK(batch.sample_indices == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(batch.group_ids == std::vector<int64_t>{1, 1, 2, 2, 2});
  CHECK(batch.prompt_ids == std::vector<int64_t>{101, 101, 102, 102, 102});
  CHECK(batch.lengths == std::vector<int64_t>{5, 2, 3, 3, 5});
  CHECK(batch.response_lengths == std::vector<int64_t>{3, 1, 0, 2, 4});
  CHECK(batch.tokens == std::vector<int64_t>{3, 4, 5, 6, 7, 3, 8, 3, 4, 5, 9, 1, 2, 9, 4, 4, 4, 4});
  CHECK(batch.loss_mask == std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 1, 1, 1, 1});
  CHECK(batch.rollout_logprobs[3] == -0.5);
  CHECK(batch.has_reward == std::vector<uint8_t>{1, 1, 1, 0, 1});
  CHECK(batch.rewards == std::vector<double>{1.0, 0.0, 0.5, 0.0, 1.0});
  CHECK(offsets(batch.lengths) == std::vector<int64_t>{0, 5, 7, 10, 13, 18});
}

TEST_CASE("advantages are normalised within the groups and leave out what has no reward") {
  const TrainBatch batch = make_train_batch(mixed_samples(), "run", 3, 4);
  // Both groups have two rewards at distance d: the deviation is d / sqrt 2, the advantage +-(d / 2) / (d / sqrt 2 +
  // 1e-6).
  const double far = 0.5 / (std::sqrt(0.5) + 1e-6);
  const double near = 0.25 / (std::sqrt(0.125) + 1e-6);
  CHECK(batch.advantages[0] == doctest::Approx(far));
  CHECK(batch.advantages[1] == doctest::Approx(-far));
  CHECK(batch.advantages[2] == doctest::Approx(-near));
  CHECK(batch.advantages[3] == 0.0);
  CHECK(batch.advantages[4] == doctest::Approx(near));
}

TEST_CASE("an aborted sample's reward does not move its group") {
  std::vector<Sample> samples = {make_sample(0, 1, 1.0), make_sample(1, 1, 0.0), make_sample(2, 1, 99.0)};
  samples[2].state = SampleState::aborted;
  const TrainBatch batch = make_train_batch(samples, "run", 0, 1);
  CHECK(batch.advantages[0] == doctest::Approx(0.5 / (std::sqrt(0.5) + 1e-6)));
  CHECK(batch.advantages[2] == 0.0);
  CHECK(std::vector<uint8_t>(batch.loss_mask.end() - 3, batch.loss_mask.end()) == std::vector<uint8_t>{0, 0, 0});
}

TEST_CASE("a sample that comes twice or is damaged stops the batch") {
  std::vector<Sample> samples = mixed_samples();
  samples[1].index = 0;
  CHECK_THROWS_AS(make_train_batch(samples, "run", 0, 1), Error);
  samples = mixed_samples();
  samples[0].rollout_logprobs[0] = std::nan("");
  CHECK_THROWS_AS(make_train_batch(samples, "run", 0, 1), Error);
}

TEST_CASE("a batch file reads back to the same batch") {
  const TempDir dir;
  const fs::path path = dir.path() / "rollout_000012.safetensors";
  const TrainBatch batch = make_train_batch(mixed_samples(), "run-a", 12, 13);
  write_train_batch(path, batch);
  CHECK(read_train_batch(path, "run-a") == batch);
  CHECK(read_train_batch(path) == batch);
  const tensor::SafetensorsFile file(path);
  CHECK(file.metadata().at("run_id") == "run-a");
  CHECK(file.metadata().at("rollout_id") == "12");
  CHECK(file.metadata().at("weight_version") == "13");
}

TEST_CASE("a batch without any response token can be written and read") {
  const TempDir dir;
  const std::vector<Sample> samples = {make_sample(0, 1, 1.0, {3}, {})};
  const TrainBatch batch = make_train_batch(samples, "run", 0, 1);
  write_train_batch(dir.path() / "b.safetensors", batch);
  CHECK(read_train_batch(dir.path() / "b.safetensors", "run") == batch);
}

TEST_CASE("a batch of another run, of another kind or with arrays that do not fit is refused") {
  const TempDir dir;
  const fs::path path = dir.path() / "b.safetensors";
  write_train_batch(path, make_train_batch(mixed_samples(), "run-a", 12, 13));
  CHECK(refusal(path, "run-b").find("expected a rollout of run run-b, found run run-a") != std::string::npos);
  CHECK(refusal(dir.path() / "absent.safetensors", "") != "");

  const int64_t number = 1;
  const tensor::TensorView view{{"tokens", tensor::DType::i64, {1}}, reinterpret_cast<const std::byte*>(&number)};
  tensor::write_safetensors(path, {view});
  CHECK(refusal(path, "").find("run_id") != std::string::npos);
  tensor::write_safetensors(path, {view}, {{"run_id", "r"}, {"rollout_id", "x"}, {"weight_version", "1"}});
  CHECK(refusal(path, "").find("expected an integer, found \"x\"") != std::string::npos);

  TrainBatch damaged = make_train_batch(mixed_samples(), "run-a", 12, 13);
  damaged.lengths[0] += 1;
  CHECK_THROWS_AS(write_train_batch(path, damaged), Error);
}

TEST_CASE("lengths that do not add up in a file are refused") {
  const TempDir dir;
  const fs::path path = dir.path() / "b.safetensors";
  write_train_batch(path, make_train_batch(mixed_samples(), "run-a", 12, 13));
  // Rewrites the file with one wrong length.
  const tensor::SafetensorsFile file(path);
  std::vector<tensor::TensorView> tensors = file.tensors();
  for (int64_t wrong : {int64_t{6}, int64_t{-1}, int64_t{1} << 62}) {
    std::vector<int64_t> lengths = {wrong, 2, 3, 3, 5};
    for (tensor::TensorView& view : tensors) {
      if (view.info.name == "lengths") view.data = reinterpret_cast<const std::byte*>(lengths.data());
    }
    tensor::write_safetensors(dir.path() / "bad.safetensors", tensors, file.metadata());
    CHECK(refusal(dir.path() / "bad.safetensors", "").find("bad.safetensors: ") != std::string::npos);
  }
}
