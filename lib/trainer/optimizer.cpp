#include "trainer/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "tensor/safetensors.hpp"

namespace vime::trainer {
namespace {

constexpr int64_t kChunk = int64_t{1} << 18;  // elements updated at once: the five streams of a chunk stay in the cache

int64_t floats(uint64_t bytes) {
  return static_cast<int64_t>(bytes / sizeof(float));
}

// Writes and reads the two moments under the parameters' names.
struct Moment {
  std::string prefix;
  const torch::Tensor& flat;
};

tensor::TensorInfo info_of(const Moment& moment, const arch::ArenaEntry& entry) {
  return {moment.prefix + entry.parameter.full.name, tensor::DType::f32, entry.shard.shape};
}

std::byte* data_of(const Moment& moment, const arch::ArenaEntry& entry) {
  return static_cast<std::byte*>(moment.flat.data_ptr()) + entry.offset;
}

int64_t counter(const tensor::SafetensorsFile& file, const std::string& name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end() || found->second.empty() || found->second.size() > 18 ||
      found->second.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(ErrorKind::refused, file.path().string() + ": metadata \"" + name + "\": expected a count, found " +
                                        (found == file.metadata().end() ? "nothing" : "\"" + found->second + "\""));
  }
  return std::stoll(found->second);
}

}  // namespace

Optimizer::Optimizer(model::Decoder& decoder, const OptimizerOptions& options) : decoder_(decoder), options_(options) {
  const arch::ArenaLayout& layout = decoder.layout();
  const int64_t elements = floats(layout.total_bytes);
  const auto type = torch::TensorOptions().dtype(torch::kFloat32);
  auto* arena = static_cast<std::byte*>(decoder.parameters().front().value.data_ptr()) - layout.entries.front().offset;
  weights_ = torch::from_blob(arena, {elements}, type);
  gradient_ = torch::zeros({elements}, type);
  exp_avg_ = torch::zeros({elements}, type);
  exp_avg_sq_ = torch::zeros({elements}, type);
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    torch::Tensor& value = decoder.parameters()[i].value;
    VIME_CHECK(value.scalar_type() == torch::kFloat32, "the optimizer's weights are float32");
    // Autograd adds into a gradient that exists in place, so it stays a view of the flat buffer.
    value.mutable_grad() = gradient_.narrow(0, floats(layout.entries[i].offset), value.numel()).view(value.sizes());
  }
}

Optimizer::Result Optimizer::step() {
  Result result;
  result.lr = options_.schedule.at(steps_++);
  result.grad_norm = gradient_.to(torch::kFloat64).norm().item<double>();
  // Adam's moments never recover from a NaN, so a bad gradient must not reach them.
  if (!std::isfinite(result.grad_norm)) return result;
  if (options_.clip_grad > 0 && result.grad_norm > options_.clip_grad) {
    gradient_.mul_(options_.clip_grad / (result.grad_norm + 1e-6));
  }
  ++applied_;
  update(result.lr);
  result.applied = true;
  return result;
}

void Optimizer::update(double lr) {
  const torch::NoGradGuard no_grad;
  if (options_.weight_decay != 0.0) {
    for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
      if (entry.parameter.full.shape.size() < 2) continue;
      weights_.narrow(0, floats(entry.offset), floats(entry.bytes)).mul_(1.0 - lr * options_.weight_decay);
    }
  }
  const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(applied_));
  const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(applied_));
  for (int64_t begin = 0; begin < weights_.numel(); begin += kChunk) {
    const int64_t count = std::min(kChunk, weights_.numel() - begin);
    const torch::Tensor gradient = gradient_.narrow(0, begin, count);
    torch::Tensor exp_avg = exp_avg_.narrow(0, begin, count);
    torch::Tensor exp_avg_sq = exp_avg_sq_.narrow(0, begin, count);
    exp_avg.mul_(options_.beta1).add_(gradient, 1.0 - options_.beta1);
    exp_avg_sq.mul_(options_.beta2).addcmul_(gradient, gradient, 1.0 - options_.beta2);
    const torch::Tensor denominator = exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(options_.eps);
    weights_.narrow(0, begin, count).addcdiv_(exp_avg, denominator, -lr / correction1);
  }
}

std::vector<tensor::TensorView> Optimizer::moments() const {
  std::vector<tensor::TensorView> views;
  for (const Moment& moment : {Moment{"exp_avg.", exp_avg_}, Moment{"exp_avg_sq.", exp_avg_sq_}}) {
    for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
      views.push_back({info_of(moment, entry), data_of(moment, entry)});
    }
  }
  return views;
}

void Optimizer::save(const fs::path& path) const {
  tensor::write_safetensors(path, moments(),
                            {{"steps", std::to_string(steps_)}, {"applied_steps", std::to_string(applied_)}});
}

void Optimizer::load(const fs::path& path) {
  const tensor::SafetensorsFile file(path);
  for (const Moment& moment : {Moment{"exp_avg.", exp_avg_}, Moment{"exp_avg_sq.", exp_avg_sq_}}) {
    for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
      const tensor::TensorInfo expected = info_of(moment, entry);
      const tensor::TensorView& found = file.find(expected.name);
      if (found.info.dtype != expected.dtype || found.info.shape != expected.shape) {
        throw Error(ErrorKind::refused,
                    path.string() + ": " + expected.name + ": expected float32 " + tensor::shape_text(expected.shape) +
                        ", found " + tensor::dtype_name(found.info.dtype) + " " + tensor::shape_text(found.info.shape));
      }
      std::memcpy(data_of(moment, entry), found.data, entry.bytes);
    }
  }
  steps_ = counter(file, "steps");
  applied_ = counter(file, "applied_steps");
}

}  // namespace vime::trainer
