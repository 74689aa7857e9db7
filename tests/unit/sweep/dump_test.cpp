#include "sweep/dump.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "sweep/compare.hpp"
#include "tensor/safetensors.hpp"
#include "unit/sweep/records.hpp"

using namespace vime;
using namespace vime::sweep;
using tensor::DType;

namespace {

const placement::Layout kLayout{2, 2, 1, 2};

struct Tensors {
  std::vector<tensor::TensorView> views;

  void add(const std::string& name, const tensor::Shape& shape, const std::vector<float>& values) {
    views.push_back({{name, DType::f32, shape}, reinterpret_cast<const std::byte*>(values.data())});
  }
  void add(const std::string& name, const std::vector<double>& values) {
    views.push_back(
        {{name, DType::f64, {static_cast<int64_t>(values.size())}}, reinterpret_cast<const std::byte*>(values.data())});
  }
  tensor::TensorView& named(const std::string& name) {
    for (tensor::TensorView& view : views) {
      if (view.info.name == name) return view;
    }
    throw std::runtime_error(name);
  }
};

Tensors tensors_of(const RankRecord& rank) {
  Tensors tensors;
  for (const ShardRecord& shard : rank.shards) {
    tensors.add("grad." + shard.name, shard.shard.shape, shard.gradient);
    tensors.add("weight." + shard.name, shard.shard.shape, shard.weight);
  }
  tensors.add("logprobs", rank.logprobs);
  tensors.add("logprobs_after", rank.logprobs_after);
  return tensors;
}

int64_t response_tokens() {
  int64_t count = 0;
  for (const int64_t length : test_responses()) count += length;
  return count;
}

// Rank 3 of the layout: tp 1, dp 1, first stage.
struct Scene {
  TempDir folder;
  StepRecord record = make_record(kLayout);
  RankRecord& rank = record.ranks[3];
  Tensors tensors = tensors_of(rank);

  RankRecord read() {
    tensor::write_safetensors(folder.path() / "rank_3.safetensors", tensors.views);
    return read_rank_dump(folder.path(), test_model(), {rank.place, kLayout}, response_tokens());
  }
  std::string failure() {
    try {
      read();
      return "";
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::check_failed);
      return error.message();
    }
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank's dump reads back to what the rank holds") {
  Scene scene;
  const RankRecord read = scene.read();
  REQUIRE(read.shards.size() == scene.rank.shards.size());
  for (size_t i = 0; i < read.shards.size(); ++i) {
    CHECK(read.shards[i].name == scene.rank.shards[i].name);
    CHECK(read.shards[i].gradient == scene.rank.shards[i].gradient);
    CHECK(read.shards[i].weight == scene.rank.shards[i].weight);
    CHECK(read.shards[i].shard.begin == scene.rank.shards[i].shard.begin);
  }
  CHECK(read.logprobs.size() == scene.rank.logprobs.size());
}

TEST_CASE("a dump that lacks a parameter, holds one of another rank, or has another shape or type is a failure") {
  const std::string name = "grad.model.layers.1.mlp.up_proj.weight";
  {
    Scene scene;
    std::erase_if(scene.tensors.views, [&](const tensor::TensorView& view) { return view.info.name == name; });
    CHECK(contains(scene.failure(), name + " is missing"));
    CHECK(contains(scene.failure(), "rank 3 (tp 1, pp 0, cp 0, dp 1): "));
  }
  {
    Scene scene;
    scene.tensors.add("grad.model.layers.4.mlp.up_proj.weight", {1}, {scene.rank.shards[0].gradient});
    CHECK(contains(scene.failure(), "grad.model.layers.4.mlp.up_proj.weight does not belong on this rank"));
  }
  {
    Scene scene;
    scene.tensors.named(name).info.shape = {32, 128};  // the rows' halves side by side
    CHECK(contains(scene.failure(), name + ": expected float32 [64, 64], found float32 [32, 128]"));
  }
  {
    Scene scene;
    scene.tensors.named("logprobs").info = {"logprobs", DType::i64, {response_tokens()}};
    CHECK(contains(scene.failure(), "logprobs: expected float64 [29], found int64 [29]"));
  }
}

TEST_CASE("a dump that is not there is an error that names the file") {
  TempDir folder;
  const placement::TrainerRank place{};
  CHECK_THROWS_AS(read_rank_dump(folder.path(), test_model(), {place, {1, 1, 1, 1}}, 1), Error);
}
