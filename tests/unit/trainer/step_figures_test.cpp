// What a rank says of its part of a tensor: every element counts, wherever it lies in the baseline's.
#include "trainer/step_figures.hpp"

#include "torch_doctest.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/files.hpp"
#include "tensor/safetensors.hpp"

using namespace vime;
using namespace vime::trainer;
using rollout::ShardFigures;
using rollout::TensorFigures;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSpacing = 1.0 / 128;

arch::Shard shard_of_rows(int64_t begin, int64_t end, int64_t columns) {
  return {0, begin, end, 0, {end - begin, columns}};
}

torch::Tensor part_of(const torch::Tensor& whole, const arch::Shard& shard) {
  return whole.narrow(shard.dim, shard.begin, shard.end - shard.begin).clone();
}

// Of one element of a vector.
TensorFigures of_one(double found, double expected, double spacing = 0.0) {
  const torch::Tensor mine = torch::full({1}, found, torch::kFloat32);
  return tensor_figures(mine, {0, 0, 1, 0, {1}}, torch::full({1}, expected, torch::kFloat32), spacing);
}

void write_file(const fs::path& path, const tensor::TensorInfo& info, const torch::Tensor& gradient,
                const torch::Tensor& weight) {
  std::vector<tensor::TensorView> views;
  for (const auto& [kind, values] : {std::pair{"grad.", gradient}, std::pair{"weight.", weight}}) {
    views.push_back({{kind + info.name, info.dtype, info.shape}, static_cast<const std::byte*>(values.data_ptr())});
  }
  tensor::write_safetensors(path, views);
}

}  // namespace

TEST_CASE("a part that is the baseline's differs by nothing, and says how large it is") {
  torch::manual_seed(1);
  const torch::Tensor whole = torch::randn({6, 4});
  for (const arch::Shard& shard : {shard_of_rows(0, 6, 4), shard_of_rows(2, 4, 4), arch::Shard{1, 2, 4, 0, {6, 2}}}) {
    const torch::Tensor mine = part_of(whole, shard);
    const TensorFigures figures = tensor_figures(mine, shard, whole);
    CHECK(figures.difference == 0.0);
    CHECK(figures.difference_squares == 0.0);
    CHECK(figures.compared == mine.numel());
    CHECK(figures.largest == mine.abs().max().item<double>());
    CHECK(figures.squares == doctest::Approx(mine.to(torch::kFloat64).square().sum().item<double>()));
    const TensorFigures alone = tensor_figures(mine, shard, {});
    CHECK(alone.largest == figures.largest);
    CHECK(alone.squares == figures.squares);
    CHECK(alone.compared == 0);
    CHECK(alone.difference == 0.0);
  }
}

TEST_CASE("planted.a sign flip is found with its place in the whole tensor, in rows and in columns") {
  torch::manual_seed(2);
  const torch::Tensor whole = torch::randn({8, 6});
  for (const arch::Shard& shard : {shard_of_rows(4, 8, 6), arch::Shard{1, 3, 6, 0, {8, 3}}}) {
    torch::Tensor mine = part_of(whole, shard);
    const double before = mine[2][1].item<double>();
    mine[2][1] = -before;
    const TensorFigures figures = tensor_figures(mine, shard, whole);
    CHECK(figures.difference == 2.0 * std::abs(before));
    CHECK(figures.difference_squares == doctest::Approx(4.0 * before * before));
    CHECK(figures.at == (shard.dim == 0 ? 6 * 6 + 1 : 2 * 6 + 4));
    CHECK(figures.found == -before);
    CHECK(figures.expected == before);
  }
}

TEST_CASE("planted.rows that changed places, and another rank's rows, differ") {
  torch::manual_seed(3);
  const torch::Tensor whole = torch::randn({8, 6});
  const arch::Shard shard = shard_of_rows(4, 8, 6);
  torch::Tensor mine = part_of(whole, shard);
  const torch::Tensor first = mine[0].clone();
  mine[0].copy_(mine[1]);
  mine[1].copy_(first);
  CHECK(tensor_figures(mine, shard, whole).difference ==
        (whole[4] - whole[5].to(torch::kFloat64)).abs().max().item<double>());
  CHECK(tensor_figures(part_of(whole, shard_of_rows(0, 4, 6)), shard, whole).difference > 0.0);
}

TEST_CASE("planted.of a tensor that is taken in pieces every piece counts, the last one too") {
  torch::manual_seed(4);
  const int64_t rows = 4500, columns = 1000;  // more than a piece has
  const torch::Tensor whole = torch::randn({rows, 2 * columns});
  const arch::Shard shard{1, columns, 2 * columns, 0, {rows, columns}};
  for (const int64_t row : {int64_t{0}, int64_t{4193}, int64_t{4194}, rows - 1}) {
    torch::Tensor mine = part_of(whole, shard);
    mine[row][7] += 50.0;
    const TensorFigures figures = tensor_figures(mine, shard, whole);
    CHECK(figures.compared == rows * columns);
    CHECK(figures.difference == doctest::Approx(50.0));
    CHECK(figures.at == row * 2 * columns + columns + 7);
    CHECK(figures.largest >= 45.0);
    CHECK(figures.difference_squares == doctest::Approx(2500.0));
  }
}

TEST_CASE("a NaN is infinitely far on either side, and so are equal infinities") {
  CHECK(of_one(std::nan(""), 1.0).difference == kInfinity);
  CHECK(std::isnan(of_one(std::nan(""), 1.0).found));
  CHECK(std::isnan(of_one(std::nan(""), 1.0).largest));
  CHECK(of_one(1.0, std::nan("")).difference == kInfinity);
  CHECK(of_one(kInfinity, kInfinity).difference == kInfinity);
  CHECK(of_one(kInfinity, 1.0).difference == kInfinity);
  CHECK(of_one(1.0, std::nan(""), kSpacing).difference == kInfinity);
  CHECK(of_one(kInfinity, kInfinity, kSpacing).difference == kInfinity);
  torch::Tensor mine = torch::zeros({4});
  mine[1] = std::nan("");
  mine[3] = 9.0;
  const TensorFigures figures = tensor_figures(mine, {0, 0, 4, 0, {4}}, torch::zeros({4}));
  CHECK(figures.difference == kInfinity);
  CHECK(figures.at == 1);
  CHECK(std::isnan(figures.largest));
}

TEST_CASE("neighbours in bfloat16 do not differ, and what is further apart does by what is beyond") {
  CHECK(of_one(1.0, 1.0 + 0x1p-7, kSpacing).difference == 0.0);
  CHECK(of_one(1.0, 1.0 - 0x1p-8, kSpacing).difference == 0.0);
  CHECK(of_one(-0.1416, -0.1416 - 0x1p-10, kSpacing).difference == 0.0);
  CHECK(of_one(1.0, 1.0 + 0x1p-6, kSpacing).difference == 0x1p-7);
  CHECK(of_one(0.5, -0.5, kSpacing).difference == 1.0 - 0x1p-8);
  CHECK(of_one(0x1p-120, 0x1p-120 + 0x1p-127, kSpacing).difference == 0.0);
  CHECK(of_one(0.0, 0.0, kSpacing).difference == 0.0);
  CHECK(of_one(1.0, 1.0 + 0x1p-7).difference == 0x1p-7);
}

TEST_CASE("an empty part of a short vocabulary has nothing to say") {
  const TensorFigures figures = tensor_figures(torch::zeros({0, 4}), {0, 8, 8, 0, {0, 4}}, torch::zeros({8, 4}));
  CHECK(figures.compared == 0);
  CHECK(figures.difference == 0.0);
}

TEST_CASE("a step's file has what a single rank holds, and a rank in bfloat16 is held against it") {
  const TempDir folder;
  const std::string file = folder.path() / "steps/step_1.safetensors";
  const arch::ModelConfig config = arch::preset("tiny-parallel", 61);
  for (const tensor::DType dtype : {tensor::DType::f32, tensor::DType::bf16}) {
    torch::manual_seed(5);
    const arch::ArenaLayout arena = arch::arena_layout(config, dtype, 0, 1);
    const auto elements = static_cast<int64_t>(arena.total_bytes / tensor::element_bytes(dtype));
    const torch::Tensor gradient = torch::randn({elements});
    torch::Tensor weights = torch::randn({elements});
    if (dtype == tensor::DType::bf16) weights = weights.to(torch::kBFloat16);
    write_step(file, arena, gradient, weights);
    for (const ShardFigures& shard : step_figures(arena, gradient, weights, file, 0.0)) {
      CAPTURE(shard.name);
      CHECK(shard.gradient.compared == tensor::element_count(shard.full_shape));
      CHECK(shard.weight.compared == shard.gradient.compared);
      CHECK(shard.gradient.difference == 0.0);
      CHECK(shard.weight.difference == 0.0);
    }
    torch::Tensor other = weights.clone();
    const arch::ArenaEntry& last = arena.entries.back();
    other[static_cast<int64_t>(last.offset / tensor::element_bytes(dtype)) + 3] = 100.0;
    const std::vector<ShardFigures> found = step_figures(arena, gradient, other, file, 0.0);
    CHECK(found.back().weight.difference > 50.0);
    CHECK(found.back().weight.at == 3);
    CHECK(found.back().gradient.difference == 0.0);
    CHECK(found.front().weight.difference == 0.0);
  }
}

TEST_CASE("planted.a rank's cut of every parameter is held against its own part of the file") {
  const TempDir folder;
  const std::string file = folder.path() / "step";
  const arch::ModelConfig config = arch::preset("tiny-parallel", 61);
  torch::manual_seed(6);
  const arch::ArenaLayout whole = arch::arena_layout(config, tensor::DType::f32, 0, 1);
  const torch::Tensor values = torch::randn({static_cast<int64_t>(whole.total_bytes / sizeof(float))});
  write_step(file, whole, values, values);
  for (const int rank : {0, 3}) {
    const arch::ArenaLayout arena =
        arch::arena_layout(config, tensor::DType::f32, rank, 4, arch::stage_of(config, 1, 2));
    torch::Tensor mine = torch::zeros({static_cast<int64_t>(arena.total_bytes / sizeof(float))});
    for (const arch::ArenaEntry& entry : arena.entries) {
      for (const arch::ArenaEntry& from : whole.entries) {
        if (from.parameter.full.name != entry.parameter.full.name) continue;
        arch::copy_shard(static_cast<const std::byte*>(values.data_ptr()) + from.offset, from.parameter.full,
                         entry.shard, static_cast<std::byte*>(mine.data_ptr()) + entry.offset);
      }
    }
    const std::vector<ShardFigures> found = step_figures(arena, mine, mine, file, 0.0);
    REQUIRE(found.size() == arena.entries.size());
    for (const ShardFigures& shard : found) {
      CAPTURE(shard.name);
      CHECK(shard.gradient.difference == 0.0);
      CHECK(shard.weight.compared == tensor::element_count(shard.shape));
    }
    // As if the rank were its neighbour.
    arch::ArenaLayout wrong = arena;
    for (arch::ArenaEntry& entry : wrong.entries) {
      entry.shard = arch::shard_of(entry.parameter, rank == 0 ? 1 : rank - 1, 4);
      if (entry.shard.shape != arena.entries[static_cast<size_t>(&entry - wrong.entries.data())].shard.shape) {
        entry.shard = arena.entries[static_cast<size_t>(&entry - wrong.entries.data())].shard;
      }
    }
    int differing = 0;
    for (const ShardFigures& shard : step_figures(wrong, mine, mine, file, 0.0)) {
      differing += shard.gradient.difference > 0.0 ? 1 : 0;
    }
    CHECK(differing > 10);
  }
}

TEST_CASE("a file that is not this model's is refused by name") {
  const TempDir folder;
  const fs::path path = folder.path() / "step";
  arch::ArenaLayout arena;
  arch::ArenaEntry entry;
  entry.parameter.full = {"w", tensor::DType::f32, {2, 3}};
  entry.shard = {0, 0, 2, 0, {2, 3}};
  entry.bytes = 24;
  arena.entries = {entry};
  arena.total_bytes = 24;
  const torch::Tensor flat = torch::ones({6});
  const auto refusal = [&] {
    try {
      step_figures(arena, flat, flat, path, 0.0);
      return std::string();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::refused);
      return error.message();
    }
  };
  write_file(path, {"w", tensor::DType::f32, {3, 2}}, flat, flat);
  CHECK(refusal() == path.string() + ": grad.w: expected float32 [2, 3], found float32 [3, 2]");
  write_file(path, {"v", tensor::DType::f32, {2, 3}}, flat, flat);
  CHECK(refusal().find("grad.w") != std::string::npos);
  fs::remove(path);
  CHECK(refusal().find(path.string()) != std::string::npos);
}
