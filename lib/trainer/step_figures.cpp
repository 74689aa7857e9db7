#include "trainer/step_figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/files.hpp"
#include "tensor/safetensors.hpp"

namespace vime::trainer {
namespace {

constexpr int64_t kPiece = int64_t{1} << 22;  // elements: 32 MiB for each of some ten temporaries
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr const char* kGradient = "grad.";
constexpr const char* kWeight = "weight.";

// The entry's part of a flat buffer that lies as the arena does, in its own shape.
torch::Tensor part_of(const torch::Tensor& flat, const arch::ArenaEntry& entry) {
  const uint64_t size = tensor::element_bytes(entry.parameter.full.dtype);
  return flat.narrow(0, static_cast<int64_t>(entry.offset / size), static_cast<int64_t>(entry.bytes / size))
      .view(entry.shard.shape);
}

// Where element `at` of a shard lies in the row-major whole tensor.
int64_t place_in_whole(int64_t at, const arch::Shard& shard, const torch::Tensor& whole) {
  int64_t inner = 1;
  for (int64_t dim = shard.dim + 1; dim < whole.dim(); ++dim) inner *= whole.size(dim);
  const int64_t run = inner * (shard.end - shard.begin);  // elements in a row that the shard has
  return at / run * inner * whole.size(shard.dim) + inner * shard.begin + at % run;
}

// Sizes of differences, beyond what lies between neighbours.
torch::Tensor differences(const torch::Tensor& mine, const torch::Tensor& theirs, double spacing) {
  torch::Tensor apart = (mine - theirs).abs_();
  apart = apart.masked_fill_(apart.isnan(), kInfinite);
  if (spacing == 0.0) return apart;
  const torch::Tensor size = torch::maximum(mine.abs(), theirs.abs());
  // A number over its mantissa, from 0.5 up to 1, is twice the power of two below it, exactly.
  const torch::Tensor beyond = (apart - size / std::get<0>(at::frexp(size)) * (spacing / 2)).clamp_min_(0.0);
  return torch::where(size.eq(0.0).logical_or_(size.isfinite().logical_not_()), apart, beyond);
}

class StepFile {
 public:
  explicit StepFile(const std::string& path) : file_(path) {}

  // Views the file.
  torch::Tensor whole(const std::string& kind, const tensor::TensorInfo& parameter) const {
    const tensor::TensorView& view = file_.find(kind + parameter.name);
    if (view.info.dtype != tensor::DType::f32 || view.info.shape != parameter.shape) {
      throw Error(ErrorKind::refused, file_.path().string() + ": " + view.info.name + ": expected float32 " +
                                          tensor::shape_text(parameter.shape) + ", found " +
                                          tensor::dtype_name(view.info.dtype) + " " +
                                          tensor::shape_text(view.info.shape));
    }
    return torch::from_blob(const_cast<std::byte*>(view.data), view.info.shape, torch::kFloat32);
  }

 private:
  tensor::SafetensorsFile file_;
};

}  // namespace

rollout::TensorFigures tensor_figures(const torch::Tensor& mine, const arch::Shard& shard, const torch::Tensor& whole,
                                      double spacing) {
  const torch::NoGradGuard no_grad;
  rollout::TensorFigures figures;
  if (mine.numel() == 0) return figures;  // the last parts of a short vocabulary
  const bool compares = whole.defined();
  const torch::Tensor theirs = compares ? whole.narrow(shard.dim, shard.begin, shard.end - shard.begin) : whole;
  const int64_t rows = mine.size(0), row = mine.numel() / rows;
  const int64_t step = std::max<int64_t>(1, kPiece / row);
  figures.difference = compares ? -1.0 : 0.0;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    const torch::Tensor own = mine.narrow(0, begin, count).to(torch::kFloat64);
    const double largest = own.abs().max().item<double>();  // lets a NaN through
    if (!(largest <= figures.largest) && !std::isnan(figures.largest)) figures.largest = largest;
    figures.squares += own.square().sum().item<double>();
    if (!compares) continue;
    figures.compared += own.numel();
    const torch::Tensor other = theirs.narrow(0, begin, count).to(mine.device()).to(torch::kFloat64);
    const torch::Tensor apart = differences(own, other, spacing).flatten();
    figures.difference_squares += apart.square().sum().item<double>();
    const auto [furthest, index] = apart.max(0);
    if (furthest.item<double>() <= figures.difference) continue;
    const auto at = index.item<int64_t>();
    figures.difference = furthest.item<double>();
    figures.at = place_in_whole(begin * row + at, shard, whole);
    figures.found = own.flatten()[at].item<double>();
    figures.expected = other.flatten()[at].item<double>();
  }
  return figures;
}

std::vector<rollout::ShardFigures> step_figures(const arch::ArenaLayout& arena, const torch::Tensor& gradient,
                                                const torch::Tensor& weights, const std::string& against,
                                                double weight_spacing) {
  std::optional<StepFile> file;
  if (!against.empty()) file.emplace(against);
  std::vector<rollout::ShardFigures> shards;
  for (const arch::ArenaEntry& entry : arena.entries) {
    const tensor::TensorInfo& full = entry.parameter.full;
    const auto whole = [&](const char* kind) { return file ? file->whole(kind, full) : torch::Tensor(); };
    shards.push_back({.name = full.name,
                      .full_shape = full.shape,
                      .dim = entry.shard.dim,
                      .begin = entry.shard.begin,
                      .end = entry.shard.end,
                      .shape = entry.shard.shape,
                      .gradient = tensor_figures(part_of(gradient, entry), entry.shard, whole(kGradient)),
                      .weight = tensor_figures(part_of(weights, entry), entry.shard, whole(kWeight), weight_spacing)});
  }
  return shards;
}

void write_step(const std::string& path, const arch::ArenaLayout& arena, const torch::Tensor& gradient,
                const torch::Tensor& weights) {
  std::vector<tensor::TensorInfo> infos;
  for (const char* kind : {kGradient, kWeight}) {
    for (const arch::ArenaEntry& entry : arena.entries) {
      VIME_CHECK(entry.shard.shape == entry.parameter.full.shape, "a step's file has whole parameters");
      infos.push_back({kind + entry.parameter.full.name, tensor::DType::f32, entry.shard.shape});
    }
  }
  make_directories(fs::path(path).parent_path());
  tensor::SafetensorsWriter writer(path, infos);
  for (const torch::Tensor& flat : {gradient, weights}) {
    for (const arch::ArenaEntry& entry : arena.entries) {
      const torch::Tensor values = part_of(flat, entry).to(torch::kFloat32).cpu().contiguous();
      writer.append(static_cast<const std::byte*>(values.data_ptr()), values.nbytes());
    }
  }
  writer.finish(tensor::Lasts::until_shutdown);
}

}  // namespace vime::trainer
