#include "trainer/optimizer.hpp"

#include <torch/utils.h>
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "model/torch_device.hpp"
#include "trainer/fused_update.hpp"

namespace vime::trainer {
namespace {

constexpr int64_t kChunk = int64_t{1} << 18;  // elements updated at once: the five streams of a chunk stay in the cache
constexpr const char* kExpAvg = "exp_avg";
constexpr const char* kExpAvgSq = "exp_avg_sq";
constexpr const char* kMaster = "master";

int64_t counter(const tensor::SafetensorsFile& file, const std::string& name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end() || found->second.empty() || found->second.size() > 18 ||
      found->second.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(ErrorKind::refused, file.path().string() + ": metadata \"" + name + "\": expected a count, found " +
                                        (found == file.metadata().end() ? "nothing" : "\"" + found->second + "\""));
  }
  return std::stoll(found->second);
}

// The whole tensor of a parameter's state.
const std::byte* state_in(const tensor::SafetensorsFile& file, const std::string& state,
                          const arch::Parameter& parameter) {
  const std::string name = state + "." + parameter.full.name;
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
  const auto type = torch::TensorOptions().device(decoder.device());
  const auto bytes = static_cast<int64_t>(decoder.layout().total_bytes);
  const auto size = static_cast<int64_t>(c10::elementSize(decoder.dtype()));
  weights_ = torch::from_blob(decoder.arena(), {bytes / size}, type.dtype(decoder.dtype()));
  gradient_ = torch::zeros({elements()}, type.dtype(torch::kFloat32));
  decoder_.set_gradients(gradient_);
  share(replicas_over_sockets(model::RankGroup::alone("dp x cp")), model::RankGroup::alone("trainer"));
}

void Optimizer::share(ReplicasPtr replicas, std::shared_ptr<model::RankGroup> world) {
  VIME_CHECK(!master_.defined(), "the state is shared out before it is there");
  replicas_ = std::move(replicas);
  world_ = std::move(world);
  std::tie(begin_, end_) = replicas_->part_of(elements());
}

void Optimizer::make_state() {
  if (master_.defined()) return;
  master_ = mixed() ? own(weights_).to(torch::kFloat32, false, true) : own(weights_);
  if (options_.type != OptimizerType::adam) return;
  exp_avg_ = torch::zeros({end_ - begin_}, gradient_.options());
  exp_avg_sq_ = torch::zeros({end_ - begin_}, gradient_.options());
}

void Optimizer::round_weights(torch::ScalarType type) {
  if (rounded_ == type) return;
  VIME_CHECK(!master_.defined() && !mixed(), "float32 weights are rounded before the first step");
  const torch::NoGradGuard no_grad;
  rounded_ = type;
  weights_.copy_(weights_.to(type));
}

void Optimizer::hand_on_master() {
  own(weights_).copy_(rounded_ ? master_.to(*rounded_) : master_);
}

void Optimizer::offload() {
  if (!decoder_.device().is_cuda()) return;
  decoder_.set_gradients({});
  gradient_ = torch::Tensor();
  sums_ = torch::Tensor();
  for (const std::string& name : state_names()) {
    torch::Tensor& state = state_named(name);
    if (!state.defined()) continue;  // before the first step
    state = torch::empty(state.sizes(), state.options().device(torch::kCPU).pinned_memory(true)).copy_(state);
  }
  model::release_cached_memory(decoder_.device());
}

void Optimizer::onload() {
  if (!decoder_.device().is_cuda() || gradient_.defined()) return;
  gradient_ = torch::zeros({elements()}, weights_.options().dtype(torch::kFloat32));
  decoder_.set_gradients(gradient_);
  for (const std::string& name : state_names()) {
    torch::Tensor& state = state_named(name);
    if (state.defined()) state = state.to(decoder_.device(), true);
  }
  model::synchronize(decoder_.device());  // the pinned memory goes with this call
}

std::pair<int64_t, int64_t> Optimizer::own_part(const arch::ArenaEntry& entry) const {
  return {std::max(elements_of(entry.offset), begin_), std::min(elements_of(entry.offset + entry.bytes), end_)};
}

// Of what this rank alone counts: its part of the buffer, and of it what no lower rank holds too.
double Optimizer::norm_of_sums() const {
  torch::Tensor square = torch::zeros({1}, torch::kFloat64);
  std::vector<torch::Tensor> parts;
  for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
    if (!entry.shard.owner()) continue;
    const auto [from, to] = own_part(entry);
    if (from < to) parts.push_back(sums_.slice(0, from - begin_, to - begin_));
  }
  if (sums_.is_cuda()) {
    square[0] = fused_sum_of_squares(parts);
  } else {
    for (const torch::Tensor& part : parts) square += part.to(torch::kFloat64).square().sum();
  }
  world_->all_reduce_sum(square);
  return std::sqrt(square.item<double>());
}

Optimizer::Result Optimizer::step() {
  const torch::NoGradGuard no_grad;
  Result result;
  result.lr = options_.schedule.at(steps_++);
  make_state();
  sums_ = replicas_->size() == 1 ? gradient_ : replicas_->sum_part(gradient_);
  result.grad_norm = norm_of_sums();
  // Adam's moments never recover from a NaN, so a bad gradient must not reach them.
  if (!std::isfinite(result.grad_norm)) return result;
  const bool clips = options_.clip_grad > 0 && result.grad_norm > options_.clip_grad;
  ++applied_;
  const double scale = clips ? options_.clip_grad / (result.grad_norm + 1e-6) : 1.0;
  if (weights_.is_cuda() && options_.type == OptimizerType::adam) {
    update_fused(result.lr, scale);
  } else {
    decay(result.lr);
    update(result.lr, scale);
    if (mixed()) hand_on_master();
  }
  replicas_->spread_parts(weights_);
  result.applied = true;
  return result;
}

void Optimizer::decay(double lr) {
  if (options_.weight_decay == 0.0) return;
  for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
    if (entry.parameter.full.shape.size() < 2) continue;
    const auto [from, to] = own_part(entry);
    if (from < to) master_.slice(0, from - begin_, to - begin_).mul_(1.0 - lr * options_.weight_decay);
  }
}

void Optimizer::update_fused(double lr, double scale) {
  FusedAdamW step;
  step.lr = lr;
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.eps = options_.eps;
  step.weight_decay = options_.weight_decay;
  step.correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(applied_));
  step.correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(applied_));
  step.gradient_scale = scale;
  for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
    const auto [from, to] = own_part(entry);
    // The padding behind an entry is zero and stays so, decaying or not.
    if (from < to) step.decays.emplace_back(to - begin_, entry.parameter.full.shape.size() >= 2);
  }
  if (!step.decays.empty()) step.decays.back().first = end_ - begin_;
  const bool has_type = mixed() && !rounded_;  // that the kernel writes
  fused_adamw(step, master_, exp_avg_, exp_avg_sq_, sums_, has_type ? own(weights_) : torch::Tensor());
  if (rounded_) hand_on_master();
}

void Optimizer::update(double lr, double scale) {
  const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(applied_));
  const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(applied_));
  for (int64_t begin = begin_; begin < end_; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, end_);
    const auto chunk = [&](const torch::Tensor& part) { return part.slice(0, begin - begin_, end - begin_); };
    torch::Tensor weights = chunk(master_);
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

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> names;
  if (options_.type == OptimizerType::adam) names = {kExpAvg, kExpAvgSq};
  if (mixed()) names.emplace_back(kMaster);
  return names;
}

torch::Tensor& Optimizer::state_named(const std::string& name) {
  if (name == kMaster) return master_;
  return name == kExpAvg ? exp_avg_ : exp_avg_sq_;
}

torch::Tensor Optimizer::whole_state(const std::string& name) {
  make_state();
  torch::Tensor whole = torch::empty_like(gradient_);
  own(whole).copy_(state_named(name));
  replicas_->spread_parts(whole);
  return whole;
}

std::map<std::string, std::string> Optimizer::counters() const {
  return {{"steps", std::to_string(steps_)}, {"applied_steps", std::to_string(applied_)}};
}

void Optimizer::load(const tensor::SafetensorsFile& file) {
  make_state();
  // float32 weights of a run in another type, for a run in any type: without mixed precision they are the weights.
  const bool has_master =
      file.contains(std::string(kMaster) + "." + decoder_.layout().entries.front().parameter.full.name);
  std::vector<std::string> names = state_names();
  std::erase(names, kMaster);
  if (has_master) names.emplace_back(kMaster);
  for (const std::string& name : names) {
    torch::Tensor& state = state_named(name);
    for (const arch::ArenaEntry& entry : decoder_.layout().entries) {
      arch::Parameter parameter = entry.parameter;
      parameter.full.dtype = tensor::DType::f32;
      const std::byte* whole = state_in(file, name, parameter);
      const auto [from, to] = own_part(entry);
      if (from >= to) continue;
      const int64_t begin = elements_of(entry.offset);
      torch::Tensor shard = torch::empty({elements_of(entry.bytes)}, torch::kFloat32);
      arch::copy_shard(whole, parameter.full, entry.shard, static_cast<std::byte*>(shard.data_ptr()));
      state.slice(0, from - begin_, to - begin_).copy_(shard.slice(0, from - begin, to - begin));
    }
  }
  if (has_master && !mixed()) replicas_->spread_parts(weights_);
  steps_ = counter(file, "steps");
  applied_ = counter(file, "applied_steps");
}

}  // namespace vime::trainer
