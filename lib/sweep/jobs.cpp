#include "sweep/jobs.hpp"

#include <algorithm>
#include <limits>

#include "arch/training_memory.hpp"

namespace vime::sweep {
namespace {

constexpr uint64_t kMostJobs = 4;
constexpr uint64_t kGiB = uint64_t{1} << 30;
// Of a rank and a worker: their CUDA contexts, what their libraries take, and a push's staging.
constexpr uint64_t kProcesses = 4 * kGiB;
constexpr double kUsable = 0.8;  // of a GPU's memory: what is worked out is not exact

uint64_t cache_bytes(const SweepPlan& plan) {
  const arch::ModelConfig& config = plan.prepared.config;
  const spec::Engine& engine = plan.prepared.spec.engine;
  const int64_t token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
  return static_cast<uint64_t>(engine.max_num_seqs * engine.max_model_len.value() * token) *
         tensor::element_bytes(tensor::parse_dtype_name(plan.settings.dtype));
}

}  // namespace

uint64_t leg_bytes(const SweepPlan& plan) {
  const arch::ModelConfig& config = plan.prepared.config;
  const spec::ExperimentSpec& spec = plan.prepared.spec;
  arch::TrainingWork work;
  work.dtype = tensor::parse_dtype_name(spec.trainer.dtype);
  work.stage = arch::whole_model(config);
  work.reference = spec.algorithm.kl_loss_coef != 0.0;
  work.tokens = spec.trainer.max_tokens_per_gpu;
  work.recompute = arch::parse_recompute(spec.trainer.recompute_granularity);
  // The gradient is summed once more to be compared.
  const uint64_t compared = arch::parameter_bytes(config, tensor::DType::f32);
  return arch::training_memory(config, work).total() + compared + arch::parameter_bytes(config, work.dtype) +
         cache_bytes(plan) + kProcesses;
}

int default_jobs(const SweepPlan& plan) {
  if (plan.settings.device != "cuda" || plan.settings.devices_per_gpu > 1) return 1;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const devices::Gpu& gpu : plan.machine.gpus) least = std::min(least, gpu.memory_bytes);
  const auto usable = static_cast<uint64_t>(kUsable * static_cast<double>(least));
  return static_cast<int>(std::clamp<uint64_t>(usable / leg_bytes(plan), 1, kMostJobs));
}

size_t BusyDevices::take(size_t count) {
  if (count > legs_.size()) return 0;
  size_t best = 0;
  int fewest = std::numeric_limits<int>::max();
  for (size_t first = 0; first + count <= legs_.size(); first += count) {
    const auto begin = legs_.begin() + static_cast<int64_t>(first);
    const int most = *std::max_element(begin, begin + static_cast<int64_t>(count));
    if (most >= fewest) continue;
    fewest = most;
    best = first;
  }
  add(best, count, 1);
  return best;
}

void BusyDevices::give_back(size_t first, size_t count) {
  if (count <= legs_.size()) add(first, count, -1);
}

void BusyDevices::add(size_t first, size_t count, int legs) {
  for (size_t i = first; i < first + count; ++i) legs_.at(i) += legs;
}

}  // namespace vime::sweep
