#include "torch_doctest.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/json.hpp"
#include "devices/gpu_share.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/roles.hpp"
#include "model/checkpoint.hpp"
#include "model/torch_device.hpp"
#include "trainer/bench_train.hpp"
#include "unit/trainer/layouts.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

// Prints the figures of one shape: shape, recompute, micro-batches (comma between), layers (0: all), kernels (0 or 1).
const test::Role bench("bench", [](const std::vector<std::string>& arguments) {
  try {
    TrainBenchOptions options;
    options.shape = arguments.at(0);
    options.device_uuid = gpu::device_uuid(0);
    options.recompute = arch::parse_recompute(arguments.at(1));
    options.micro_batches.clear();
    for (const char c : arguments.at(2)) {
      if (c != ',') options.micro_batches.push_back(c - '0');
    }
    options.layers = std::stoll(arguments.at(3));
    options.kernels = arguments.at(4) == "1";
    std::printf("%s\n", bench_train(options).dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 4;
  }
});

// Ends with 0 when LibTorch takes a sixteenth of the GPU's memory on a share of an eighth, and no quarter of it.
const test::Role sharer("sharer", [](const std::vector<std::string>&) {
  const torch::Device device = model::select_torch_device("cuda", devices::device_uuid({gpu::device_uuid(0), 5, 8}));
  const auto take = [&](uint64_t parts) {
    return torch::empty({static_cast<int64_t>(gpu::memory_info().total_bytes / parts)},
                        torch::TensorOptions().dtype(torch::kUInt8).device(device));
  };
  take(16);
  try {
    take(4);
  } catch (const c10::OutOfMemoryError&) {
    return 0;
  }
  return 3;
});

struct Trained {
  StepOfTest step;
  std::vector<StepFigures> steps;
};

RankOptions on_gpus(RankOptions options, tensor::DType dtype) {
  options.device = "cuda";
  options.dtype = dtype;
  for (size_t i = 0; i < options.plan.devices.size(); ++i) {
    options.plan.devices[i].uuid = gpu::device_uuid(static_cast<int>(i) % gpu::device_count());
  }
  return options;
}

// One step on one rank, as the probe says.
Trained train_once(const RankOptions& options, const rollout::TrainBatch& batch, const rollout::StepProbe& probe) {
  const TempDir folder;
  const fs::path path = folder.path() / "batch.safetensors";
  rollout::write_train_batch(path, batch);
  Trained trained;
  run_layout(options, [&](TrainerRank& rank) {
    const auto [steps, answer] = rank.train(path, &probe);
    trained.steps = steps;
    trained.step.add(answer, rank.place());
  });
  return trained;
}

}  // namespace

TEST_CASE("a float32 step on a GPU is the CPU's") {
  for (const bool tied : {true, false}) {
    const arch::ModelConfig config = parallel_config(tied);
    const RankOptions options = options_of({}, config);
    const TempDir folder;
    const std::string file = folder.path() / "step";
    const Trained cpu = train_once(options, parallel_batch(), {.write = file});
    const Trained gpu = train_once(on_gpus(options, tensor::DType::f32), parallel_batch(), {.against = file});
    CHECK(gpu.steps[0].policy.terms.loss == doctest::Approx(cpu.steps[0].policy.terms.loss).epsilon(1e-4));
    CHECK(gpu.steps[0].grad_norm == doctest::Approx(cpu.steps[0].grad_norm).epsilon(1e-4));
    CHECK(furthest_of(gpu.step, cpu.step, "grad.") < 1e-4);
    CHECK(furthest_of(gpu.step, cpu.step, "weight.") < 1e-4);
    CHECK(furthest_logprobs(gpu.step, cpu.step) < 1e-5);
  }
}

// bf16 keeps 8 bits: each of some 40 roundings between a token and its log-prob moves a value by at most 2^-9 of
// itself, which adds up to about one percent in activations and to some percent in gradients.
TEST_CASE("a bf16 step on a GPU is the float32 step up to bf16's rounding, with one and with many micro-batches") {
  for (const bool tied : {true, false}) {
    RankOptions options = options_of({}, parallel_config(tied));
    const TempDir folder;
    const std::string file = folder.path() / "step";
    const Trained cpu = train_once(options, parallel_batch(), {.write = file});
    for (const int64_t tokens : {70, 1000}) {
      options.max_tokens_per_gpu = tokens;
      const Trained gpu = train_once(on_gpus(options, tensor::DType::bf16), parallel_batch(), {.against = file});
      CHECK(gpu.steps[0].policy.terms.loss == doctest::Approx(cpu.steps[0].policy.terms.loss).epsilon(0.01));
      CHECK(gpu.steps[0].grad_norm == doctest::Approx(cpu.steps[0].grad_norm).epsilon(0.02));
      CHECK(furthest_of(gpu.step, cpu.step, "grad.") < 0.06);
      CHECK(furthest_logprobs(gpu.step, cpu.step) < 0.01);
      CHECK(gpu.steps[0].policy.terms.ppo_kl_abs == 0.0);
    }
  }
}

TEST_CASE("a float32 rank on a GPU that keeps its weights rounded has none that bf16 lacks, with either optimizer") {
  for (const OptimizerType type : {OptimizerType::adam, OptimizerType::sgd}) {
    RankOptions options = on_gpus(options_of({}, parallel_config(true)), tensor::DType::f32);
    options.optimizer.type = type;
    const TempDir folder;
    train_once(options, parallel_batch(), {.write = folder.path() / "exact"});
    train_once(options, parallel_batch(), {.write = folder.path() / "rounded", .round_weights = true});
    CHECK(weights_beyond_bfloat16(folder.path() / "exact") > 0);
    CHECK(weights_beyond_bfloat16(folder.path() / "rounded") == 0);
  }
}

TEST_CASE("LibTorch keeps to a share's part of the memory") {
  test::RoleProcess process("sharer", {});
  CHECK(process.wait() == 0);
}

TEST_CASE("what is computed again gives the gradients of what was kept") {
  RankOptions options = on_gpus(options_of({}, parallel_config(true)), tensor::DType::bf16);
  const TempDir folder;
  const std::string file = folder.path() / "step";
  const Trained kept = train_once(options, parallel_batch(), {.write = file});
  for (const arch::Recompute recompute : {arch::Recompute::selective, arch::Recompute::full}) {
    options.recompute = recompute;
    const Trained again = train_once(options, parallel_batch(), {.against = file});
    CHECK(again.step.logprobs == kept.step.logprobs);
    CHECK(again.steps[0].policy.terms.ppo_kl_abs == 0.0);  // of the pass that the gradients are from
    // Of whole layers only the sum of the stream is kept, so that the gradient of the stream is rounded to bf16 at each
    // of the five layers' ends, where it otherwise goes on in float32 within the fused norm: 2^-8 each at most.
    // Besides, the attention's backward pass adds up in an order that changes from run to run.
    CHECK(furthest_of(again.step, kept.step, "grad.") < 5 * 0x1.0p-8);
  }
}

// bf16 inputs are exact in float32; the kernels round probabilities and results to bf16: 2^-9 of a value each.
TEST_CASE("attention of short, long, odd and equal sequences is the exact one's, forward and backward") {
  const torch::Device device(torch::kCUDA, 0);
  const auto type = torch::TensorOptions().device(device).dtype(torch::kBFloat16);
  torch::manual_seed(5);
  const std::vector<std::vector<int64_t>> cases = {{300, 1, 1500, 1024, 1024, 7, 2048}, {2048, 2048}, {1100}, {5, 40}};
  for (const std::vector<int64_t>& lengths : cases) {
    int64_t rows = 0;
    for (const int64_t length : lengths) rows += length;
    for (const int64_t dim : {64, 128}) {
      const torch::Tensor qkv = torch::randn({rows, 12, dim}, type);
      const torch::Tensor d_out = torch::randn({rows, 8, dim}, type);
      const auto run = [&](torch::ScalarType dtype, bool same_bits) {
        std::vector<torch::Tensor> in;
        for (const auto& [begin, heads] : {std::pair{0, 8}, {8, 2}, {10, 2}})
          in.push_back(qkv.narrow(1, begin, heads).to(dtype).requires_grad_(true));
        const torch::Tensor out = model::packed_attention(lengths, device, dtype, same_bits)(0, in[0], in[1], in[2]);
        torch::autograd::backward({out}, {d_out.to(dtype)});
        return std::vector<torch::Tensor>{out.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
      };
      const std::vector<torch::Tensor> exact = run(torch::kFloat32, false);
      for (const bool same_bits : {false, true}) {
        const std::vector<torch::Tensor> found = run(torch::kBFloat16, same_bits);
        for (size_t i = 0; i < exact.size(); ++i) {
          const torch::Tensor wide = found[i].to(torch::kFloat32);
          CHECK((wide - exact[i]).norm().item<double>() < 0.01 * exact[i].norm().item<double>());
          CHECK((wide - exact[i]).abs().max().item<double>() < 0.05 * exact[i].abs().max().item<double>());
        }
      }
    }
  }
}

TEST_CASE("products of a fixed number of rows give a row the same bits wherever it stands") {
  const torch::Device device(torch::kCUDA, 0);
  const arch::ModelConfig config = parallel_config(true);
  gpu::DeviceMemory memory(arch::arena_layout(config, tensor::DType::bf16, 0, 1).total_bytes);
  model::Decoder decoder(config, tensor::DType::bf16, model::single_rank(), memory.data(), device);
  model::init_weights(decoder, 3);
  decoder.set_rows_per_product(64);
  const torch::NoGradGuard no_grad;
  const torch::Tensor ids = torch::arange(100, torch::kInt64).remainder(37);
  const torch::Tensor positions = torch::arange(50, torch::kInt64).repeat({2});
  const torch::Tensor both =
      decoder.hidden_states(ids, positions, model::packed_attention({50, 50}, device, torch::kBFloat16, true));
  const torch::Tensor second = decoder.hidden_states(ids.slice(0, 50, 100), positions.slice(0, 0, 50),
                                                     model::packed_attention({50}, device, torch::kBFloat16, true));
  CHECK(torch::equal(both.slice(0, 50, 100), second));
}

TEST_CASE("offloading gives the memory back and keeps every bit") {
  const RankOptions options = on_gpus(options_of({}, parallel_config(true)), tensor::DType::bf16);
  const TempDir folder;
  const fs::path path = folder.path() / "batch.safetensors";
  rollout::write_train_batch(path, parallel_batch());
  run_layout(options, [&](TrainerRank& rank) {
    rank.train(path);
    rank.save(folder.path() / "before");
    const uint64_t used = rank.memory().used_bytes;
    rank.offload();
    // Master, two moments and gradients, four bytes a parameter each.
    CHECK(rank.memory().used_bytes + 16 * static_cast<uint64_t>(arch::parameter_count(options.config)) <= used);
    rank.offload();
    rank.onload();
    rank.onload();
    rank.save(folder.path() / "after");
    rank.train(path);
  });
  for (const char* file : {"model/model.safetensors", "trainer/optimizer.safetensors"}) {
    CHECK(read_file(folder.path() / "before" / file) == read_file(folder.path() / "after" / file));
  }
}

TEST_CASE("a checkpoint of a GPU is read on the CPU and on a GPU, bit by bit") {
  const RankOptions options = on_gpus(options_of({}, parallel_config(false)), tensor::DType::bf16);
  const TempDir folder;
  const fs::path path = folder.path() / "batch.safetensors";
  rollout::write_train_batch(path, parallel_batch());
  run_layout(options, [&](TrainerRank& rank) {
    rank.train(path);
    rank.save(folder.path() / "first");
  });
  RankOptions resumed = options;
  resumed.checkpoint_dir = folder.path() / "first";
  run_layout(resumed, [&](TrainerRank& rank) { rank.save(folder.path() / "second"); });
  for (const char* file : {"model/model.safetensors", "trainer/optimizer.safetensors"}) {
    CHECK(read_file(folder.path() / "first" / file) == read_file(folder.path() / "second" / file));
  }
  std::vector<std::byte> arena(arch::arena_layout(options.config, tensor::DType::f32, 0, 1).total_bytes);
  model::Decoder decoder(options.config, tensor::DType::f32, model::single_rank(), arena.data());
  model::load_weights(decoder, folder.path() / "first" / "model");
  const tensor::SafetensorsFile file(folder.path() / "first" / "trainer" / "optimizer.safetensors");
  for (const model::Decoder::Named& parameter : decoder.parameters()) {
    const tensor::TensorView& master = file.find("master." + parameter.name);
    const torch::Tensor values =
        torch::from_blob(const_cast<std::byte*>(master.data), parameter.value.sizes(), torch::kFloat32);
    CHECK(torch::equal(parameter.value, values.to(torch::kBFloat16).to(torch::kFloat32)));
  }
}
