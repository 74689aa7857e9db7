#include "trainer/bench_train.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>

#include "arch/shapes.hpp"
#include "arch/training_memory.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "gpu/device_memory.hpp"
#include "model/torch_device.hpp"
#include "trainer/kernel_times.hpp"
#include "trainer/optimizer.hpp"
#include "trainer/policy_step.hpp"

namespace vime::trainer {
namespace {

constexpr size_t kMostKernels = 40;

// A model with random weights and its optimizer, on the GPU.
struct Model {
  Model(const arch::ModelConfig& shape, torch::Device device, arch::Recompute recompute)
      : config(shape),
        memory(arch::arena_layout(config, tensor::DType::bf16, 0, 1).total_bytes),
        decoder(config, tensor::DType::bf16, model::single_rank(), memory.data(), device) {
    const torch::NoGradGuard no_grad;
    for (model::Decoder::Named& parameter : decoder.parameters()) {
      if (parameter.value.dim() == 2) {
        parameter.value.normal_(0.0, config.initializer_range);
      } else {
        parameter.value.fill_(1.0);
      }
    }
    decoder.require_grad(true);
    decoder.set_recompute(recompute);
  }

  arch::ModelConfig config;
  gpu::DeviceMemory memory;
  model::Decoder decoder;
};

rollout::TrainBatch random_batch(int64_t sequences, int64_t length, int64_t vocabulary) {
  rollout::TrainBatch batch;
  for (int64_t i = 0; i < sequences; ++i) {
    batch.sample_indices.push_back(i);
    batch.lengths.push_back(length);
    batch.response_lengths.push_back(length - 1);
    batch.advantages.push_back(1.0);
    for (int64_t t = 0; t < length; ++t) {
      const uint64_t number = mix_key(7, static_cast<uint64_t>(i), static_cast<uint64_t>(t));
      batch.tokens.push_back(static_cast<int64_t>(number % static_cast<uint64_t>(vocabulary)));
    }
  }
  batch.loss_mask.assign(static_cast<size_t>(sequences * (length - 1)), 1);
  batch.rollout_logprobs.assign(batch.loss_mask.size(), 0.0f);
  return batch;
}

double model_flops(const arch::ModelConfig& config, int64_t tokens, int64_t sequence, bool with_head) {
  double parameters = with_head ? static_cast<double>(config.vocab_size * config.hidden_size) : 0.0;
  for (const arch::Parameter& parameter : arch::parameters(config, tensor::DType::bf16)) {
    if (parameter.place == arch::Place::layer && parameter.full.shape.size() == 2)
      parameters += static_cast<double>(tensor::element_count(parameter.full.shape));
  }
  const double attention = 2.0 * static_cast<double>(config.num_attention_heads * config.head_dim * sequence * tokens) *
                           static_cast<double>(config.num_hidden_layers);
  return 6.0 * parameters * static_cast<double>(tokens) + 3.0 * attention;
}

// Runs the work and puts its figures together.
Json measure(const TrainBenchOptions& options, torch::Device device, const std::string& name, int64_t micro_batches,
             double flops, uint64_t arena_bytes, const std::function<void()>& work) {
  work();  // the first pass chooses algorithms and fills the allocator
  work();
  model::synchronize(device);
  model::reset_peak_memory(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < options.repeats; ++i) work();
  model::synchronize(device);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / options.repeats;
  Json result = {{"case", name},
                 {"micro_batches", micro_batches},
                 {"seconds", seconds},
                 {"tokens_per_s", static_cast<double>(micro_batches * options.tokens) / seconds},
                 {"model_tflops", flops / seconds / 1e12},
                 {"mfu", flops / seconds / 1e12 / options.peak_tflops},
                 {"peak_bytes", model::torch_memory(device).peak_used_bytes + arena_bytes}};
  if (!options.kernels) return result;
  result["kernels"] = Json::array();
  for (const KernelTime& kernel : kernel_times(work)) {
    if (result["kernels"].size() == kMostKernels) break;
    result["kernels"].push_back({{"name", kernel.name}, {"calls", kernel.calls}, {"ms", kernel.milliseconds}});
  }
  return result;
}

// Of a whole step, as `vime plan` predicts it.
uint64_t predicted_peak(const TrainBenchOptions& options, const arch::ModelConfig& config) {
  arch::TrainingWork work;
  work.stage = arch::whole_model(config);
  work.tokens = options.tokens;
  work.recompute = options.recompute;
  return arch::training_memory(config, work).total();
}

Json bench_layers(const TrainBenchOptions& options, Model& model, torch::Device device) {
  const torch::Tensor flat = torch::zeros({static_cast<int64_t>(model.memory.bytes() / 2)},
                                          torch::TensorOptions().device(device).dtype(torch::kFloat32));
  model.decoder.set_gradients(flat);
  const auto type = torch::TensorOptions().device(device).dtype(torch::kBFloat16);
  torch::Tensor x = torch::randn({options.tokens, model.config.hidden_size}, type);
  x.set_requires_grad(true);
  const torch::Tensor dy = torch::randn(x.sizes(), type);
  const torch::Tensor positions =
      torch::arange(options.sequence, torch::kInt64).repeat({options.tokens / options.sequence});
  model.decoder.check_tokens(torch::zeros({1}, torch::kInt64), positions);
  const torch::Tensor on_device = positions.to(device);
  const model::Attention attention = model::packed_attention(
      std::vector<int64_t>(static_cast<size_t>(options.tokens / options.sequence), options.sequence), device,
      torch::kBFloat16);
  const double flops = model_flops(model.config, options.tokens, options.sequence, false);
  Json result = measure(options, device, "layers", 1, flops, model.memory.bytes(), [&] {
    const torch::Tensor y = model.decoder.run_layers(x, on_device, attention).whole();
    torch::autograd::backward({y}, {dy});
    x.mutable_grad() = torch::Tensor();
  });
  model.decoder.set_gradients({});
  return result;
}

}  // namespace

TrainBenchOptions train_bench_options(const Json& json) {
  const std::string what = "bench options";
  TrainBenchOptions options;
  options.shape = json_string(json, "shape", what);
  options.device_uuid = json_string(json, "device_uuid", what);
  options.tokens = json_int(json, "tokens", what);
  options.sequence = json_int(json, "sequence", what);
  options.micro_batches = json_ints(json, "micro_batches", what);
  options.recompute = arch::parse_recompute(json_string(json, "recompute", what));
  options.layers = json_int(json, "layers", what);
  options.repeats = static_cast<int>(json_int(json, "repeats", what));
  options.kernels = json_bool(json, "kernels", what);
  return options;
}

std::string train_bench_text(const Json& result) {
  std::string text = result.at("shape").get<std::string>() + ", " + std::to_string(result.at("tokens").get<int64_t>()) +
                     " tokens a micro-batch in sequences of " + std::to_string(result.at("sequence").get<int64_t>()) +
                     "\n";
  for (const Json& one : result.at("cases")) {
    char line[160];
    std::snprintf(
        line, sizeof line, "%-7s %2lld micro-batches  %8.1f ms  %9.0f tokens/s  MFU %5.1f %%  peak %6.1f GiB\n",
        one.at("case").get<std::string>().c_str(), static_cast<long long>(one.at("micro_batches").get<int64_t>()),
        one.at("seconds").get<double>() * 1e3, one.at("tokens_per_s").get<double>(), one.at("mfu").get<double>() * 100,
        one.at("peak_bytes").get<double>() / (1 << 30));
    text += line;
    for (const Json& kernel : one.value("kernels", Json::array())) {
      std::snprintf(line, sizeof line, "  %9.3f ms  %6lld x  ", kernel.at("ms").get<double>(),
                    static_cast<long long>(kernel.at("calls").get<int64_t>()));
      text += line + kernel.at("name").get<std::string>().substr(0, 100) + "\n";
    }
  }
  return text;
}

Json bench_train(const TrainBenchOptions& options) {
  if (options.tokens % options.sequence != 0) {
    throw Error(ErrorKind::refused, "a micro-batch of " + std::to_string(options.tokens) +
                                        " tokens is not made of whole sequences of " +
                                        std::to_string(options.sequence));
  }
  const torch::Device device = model::select_torch_device("cuda", options.device_uuid);
  arch::ModelConfig config = arch::shape(options.shape);
  if (options.layers > 0) config.num_hidden_layers = options.layers;
  Model model(config, device, options.recompute);
  Json cases = Json::array();
  if (options.layers_alone) cases.push_back(bench_layers(options, model, device));
  model::release_cached_memory(device);

  OptimizerOptions optimizer_options;
  optimizer_options.schedule.lr = 1e-6;
  optimizer_options.weight_decay = 0.1;
  Optimizer optimizer(model.decoder, optimizer_options);
  PolicyOptions policy_options;
  policy_options.loss.type = algo::PolicyLossType::sft;
  const PolicyStep policy(policy_options);
  const int64_t sequences = options.tokens / options.sequence;
  for (const int64_t count : options.micro_batches) {
    const rollout::TrainBatch batch = random_batch(sequences * count, options.sequence, config.vocab_size);
    const BatchView view(batch);
    std::vector<rollout::MicroBatch> micro_batches(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      micro_batches[static_cast<size_t>(i)].resize(static_cast<size_t>(sequences));
      std::iota(micro_batches[static_cast<size_t>(i)].begin(), micro_batches[static_cast<size_t>(i)].end(),
                i * sequences);
    }
    const double flops = static_cast<double>(count) * model_flops(config, options.tokens, options.sequence, true);
    cases.push_back(measure(options, device, "step", count, flops, model.memory.bytes(), [&] {
      optimizer.zero_gradient();
      policy.backward(model.decoder, view, micro_batches, {}, static_cast<double>(sequences * count));
      VIME_CHECK(optimizer.step().applied, "a step of random tokens is finite");
    }));
    cases.back()["predicted_peak_bytes"] = predicted_peak(options, config);
  }
  return {{"shape", options.shape},       {"device", options.device_uuid},      {"tokens", options.tokens},
          {"sequence", options.sequence}, {"layers", config.num_hidden_layers}, {"cases", cases}};
}

}  // namespace vime::trainer
