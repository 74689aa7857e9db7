#include "trainer/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace vime::trainer {
namespace {

constexpr int64_t kChunk = int64_t{1} << 18;  // elements updated at once: the five streams of a chunk stay in the cache
constexpr const char* kExpAvg = "exp_avg";
constexpr const char* kExpAvgSq = "exp_avg_sq";

int64_t floats(uint64_t bytes) {
  return static_cast<int64_t>(bytes / sizeof(float));
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

// The whole tensor of a parameter's moment.
const std::byte* moment_in(const tensor::SafetensorsFile& file, const std::string& moment,
                           const arch::Parameter& parameter) {
  const std::string name = moment + "." + parameter.full.name;
  const tensor::TensorView& found = file.find(name);
  if (found.info.dtype != tensor::DType::f32 || found.info.shape != parameter.full.shape) {
    throw Error(ErrorKind::refused,
                file.path().string() + ": " + name + ": expected float32 " + tensor::shape_text(parameter.full.shape) +
                    ", found " + tensor::dtype_name(found.info.dtype) + " " + tensor::shape_text(found.info.shape));
  }
  return found.data;
}

}  // namespace

OptimizerType parse_optimizer_type(const std::string& name) {
  if (name == "adam") return OptimizerType::adam;
  if (name == "sgd") return OptimizerType::sgd;
  throw Error(ErrorKind::refused, "optimizer: expected adam or sgd, found \"" + name + "\"");
}

Optimizer::Optimizer(model::Decoder& decoder, const OptimizerOptions& options) : decoder_(decoder), options_(options) {
  const arch::ArenaLayout& layout = decoder.layout();
  const auto type = torch::TensorOptions().dtype(torch::kFloat32);
  weights_ = torch::from_blob(decoder.arena(), {floats(layout.total_bytes)}, type);
  gradient_ = torch::zeros({floats(layout.total_bytes)}, type);
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    torch::Tensor& value = decoder.parameters()[i].value;
    VIME_CHECK(value.scalar_type() == torch::kFloat32, "the optimizer's weights are float32");
    // Autograd adds into a gradient that exists in place, so it stays a view of the flat buffer.
    value.mutable_grad() = gradient_.narrow(0, floats(layout.entries[i].offset), value.numel()).view(value.sizes());
  }
  share(model::RankGroup::alone("dp x cp"), model::RankGroup::alone("trainer"));
}

void Optimizer::share(std::shared_ptr<model::RankGroup> replicas, std::shared_ptr<model::RankGroup> world) {
  VIME_CHECK(!exp_avg_.defined(), "the state is shared out before it is there");
  replicas_ = std::move(replicas);
  world_ = std::move(world);
  std::tie(begin_, end_) = model::RankGroup::part_of(elements(), replicas_->rank(), replicas_->size());
}

void Optimizer::make_moments() {
  if (options_.type != OptimizerType::adam || exp_avg_.defined()) return;
  exp_avg_ = torch::zeros({end_ - begin_}, gradient_.options());
  exp_avg_sq_ = torch::zeros({end_ - begin_}, gradient_.options());
}

std::pair<int64_t, int64_t> Optimizer::own_part(const arch::ArenaEntry& entry) const {
  return {std::max(floats(entry.offset), begin_), std::min(floats(entry.offset + entry.bytes), end_)};
}

// Of what this rank alone counts: its part of the buffer, and of it what no lower rank holds too.
double Optimizer::norm_of_sums() const {
  torch::Tensor square = torch::zeros({1}, torch::kFloat64);
  for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
    if (!entry.shard.owner()) continue;
    const auto [from, to] = own_part(entry);
    if (from < to) square += sums_.slice(0, from - begin_, to - begin_).to(torch::kFloat64).square().sum();
  }
  world_->all_reduce_sum(square);
  return std::sqrt(square.item<double>());
}

Optimizer::Result Optimizer::step() {
  const torch::NoGradGuard no_grad;
  Result result;
  result.lr = options_.schedule.at(steps_++);
  make_moments();
  sums_ = replicas_->size() == 1 ? gradient_ : replicas_->sum_part(gradient_);
  result.grad_norm = norm_of_sums();
  // Adam's moments never recover from a NaN, so a bad gradient must not reach them.
  if (!std::isfinite(result.grad_norm)) return result;
  const bool clips = options_.clip_grad > 0 && result.grad_norm > options_.clip_grad;
  ++applied_;
  decay(result.lr);
  update(result.lr, clips ? options_.clip_grad / (result.grad_norm + 1e-6) : 1.0);
  replicas_->spread_parts(weights_);
  result.applied = true;
  return result;
}

void Optimizer::decay(double lr) {
  if (options_.weight_decay == 0.0) return;
  for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
    if (entry.parameter.full.shape.size() < 2) continue;
    const auto [from, to] = own_part(entry);
    if (from < to) weights_.slice(0, from, to).mul_(1.0 - lr * options_.weight_decay);
  }
}

void Optimizer::update(double lr, double scale) {
  const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(applied_));
  const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(applied_));
  for (int64_t begin = begin_; begin < end_; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, end_);
    const auto chunk = [&](const torch::Tensor& part) { return part.slice(0, begin - begin_, end - begin_); };
    torch::Tensor weights = weights_.slice(0, begin, end);
    const torch::Tensor gradient = scale == 1.0 ? chunk(sums_) : chunk(sums_) * scale;
    if (options_.type == OptimizerType::sgd) {
      weights.add_(gradient, -lr);
      continue;
    }
    torch::Tensor exp_avg = chunk(exp_avg_);
    torch::Tensor exp_avg_sq = chunk(exp_avg_sq_);
    exp_avg.mul_(options_.beta1).add_(gradient, 1.0 - options_.beta1);
    exp_avg_sq.mul_(options_.beta2).addcmul_(gradient, gradient, 1.0 - options_.beta2);
    const torch::Tensor denominator = exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(options_.eps);
    weights.addcdiv_(exp_avg, denominator, -lr / correction1);
  }
}

torch::Tensor Optimizer::summed_gradient() const {
  torch::Tensor whole = torch::empty_like(gradient_);
  own(whole).copy_(sums_);
  replicas_->spread_parts(whole);
  return whole;
}

std::vector<std::string> Optimizer::moment_names() const {
  if (options_.type == OptimizerType::adam) return {kExpAvg, kExpAvgSq};
  return {};
}

torch::Tensor Optimizer::whole_moment(const std::string& name) {
  make_moments();
  torch::Tensor whole = torch::empty_like(gradient_);
  own(whole).copy_(name == kExpAvg ? exp_avg_ : exp_avg_sq_);
  replicas_->spread_parts(whole);
  return whole;
}

std::map<std::string, std::string> Optimizer::counters() const {
  return {{"steps", std::to_string(steps_)}, {"applied_steps", std::to_string(applied_)}};
}

void Optimizer::load(const tensor::SafetensorsFile& file) {
  make_moments();
  for (const std::string& name : moment_names()) {
    torch::Tensor& moment = name == kExpAvg ? exp_avg_ : exp_avg_sq_;
    for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
      const std::byte* whole = moment_in(file, name, entry.parameter);
      const auto [from, to] = own_part(entry);
      if (from >= to) continue;
      torch::Tensor shard = torch::empty({floats(entry.bytes)}, gradient_.options());
      arch::copy_shard(whole, entry.parameter.full, entry.shard, static_cast<std::byte*>(shard.data_ptr()));
      moment.slice(0, from - begin_, to - begin_)
          .copy_(shard.slice(0, from - floats(entry.offset), to - floats(entry.offset)));
    }
  }
  steps_ = counter(file, "steps");
  applied_ = counter(file, "applied_steps");
}

}  // namespace vime::trainer
