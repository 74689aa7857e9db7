// The embedded engine on a GPU against the CPU's, and its kernels against the CPU's definitions.
#include <cuda_runtime_api.h>
#include <torch/utils.h>
#include "arch/shapes.hpp"
#include "torch_doctest.hpp"

#include <ATen/ops/_flash_attention_forward.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.hpp"
#include "executor/device_forward.hpp"
#include "executor/host_forward.hpp"
#include "executor/sampling.hpp"
#include "executor/weight_memory.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/kv_kernels.hpp"
#include "gpu/pinned_memory.hpp"
#include "gpu/sampling_kernels.hpp"
#include "model/torch_device.hpp"
#include "unit/executor/reference.hpp"

using namespace vime;
using namespace vime::executor;

namespace {

constexpr int64_t kPositions = 64;

torch::Device device() {
  return model::select_torch_device("cuda", gpu::device_uuid(0));
}

// A model in this process's GPU memory: a reference model, or one with random weights.
struct GpuModel {
  explicit GpuModel(const arch::ModelConfig& shape)
      : config(shape),
        arena(make_gpu_weights(arch::arena_layout(config, tensor::DType::bf16, 0, 1).total_bytes)),
        decoder(config, tensor::DType::bf16, model::single_rank(), arena->data(), device()) {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(3);
    for (auto& parameter : decoder.parameters()) {
      if (parameter.value.dim() == 2) {
        parameter.value.normal_(0, 0.02);
      } else {
        parameter.value.fill_(1);
      }
    }
    gpu::synchronize();
  }
  GpuModel(const std::string& name, tensor::DType dtype)
      : config(arch::read_config(reference_dir(name))),
        arena(make_gpu_weights(arch::arena_layout(config, dtype, 0, 1).total_bytes)),
        decoder(config, dtype, model::single_rank(), arena->data(), device()) {
    model::load_weights(decoder, reference_dir(name));
    gpu::synchronize();
  }
  std::unique_ptr<Forward> forward(int64_t slots, bool deterministic, bool graphs, int64_t positions = kPositions) {
    DeviceForwardOptions options;
    options.shape = {slots, positions, 16, LogprobsMode::processed};
    options.rows_per_step = 96;
    options.deterministic = deterministic;
    options.graphs = graphs;
    options.free_before = gpu::memory_info().free_bytes;
    return make_device_forward(decoder, options);
  }
  arch::ModelConfig config;
  std::unique_ptr<WeightMemory> arena;
  model::Decoder decoder;
};

// A Forward as the scheduler knows it.
class Local final : public engine::Executor {
 public:
  explicit Local(Forward& forward) : forward_(forward) {}
  int world_size() const override { return 1; }
  int64_t max_slots() const override { return forward_.slots(); }
  int64_t max_model_len() const override { return 1 << 20; }
  int64_t max_batch_rows() const override { return 96; }
  std::vector<engine::Sampled> step(const engine::Batch& batch) override { return forward_.run(batch, true); }
  void init_transfer(const Json&) override {}
  void start_update() override {}
  void update(const Json&) override {}
  void finish_update() override {}
  std::map<std::string, uint64_t> checksums() override { return {}; }
  void reload(const std::string&) override {}
  void sleep(int) override {}
  void wake(bool, bool) override {}

 private:
  Forward& forward_;
};

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

// Prompts of many lengths with all kinds of settings.
std::vector<Asked> mixed_requests(std::size_t count, bool greedy) {
  std::vector<Asked> asked;
  for (uint64_t i = 0; i < count; ++i) {
    Asked one;
    for (uint64_t k = 0; k < 1 + mix_key(i, 7) % 24; ++k)
      one.prompt.push_back(static_cast<int32_t>(mix_key(i, k) % 160));
    one.sampling.max_tokens = 1 + static_cast<int64_t>(mix_key(i, 8) % 30);
    one.sampling.seed = i;
    if (greedy) one.sampling.temperature = 0;
    if (!greedy && i % 4 == 1) one.sampling.top_k = 7;
    if (!greedy && i % 4 == 2) one.sampling.top_p = 0.8;
    if (i % 5 == 3) {
      one.sampling.min_tokens = 2;
      one.sampling.stop_token_ids = {3, 5, 8};
    }
    if (i % 7 == 2) one.sampling.prompt_logprobs = 1;
    asked.push_back(one);
  }
  return asked;
}

// Teacher-forced log-probs of every token behind a prompt of one: the trainer's way, whole sequences through flash
// attention.
torch::Tensor trained_logprobs(model::Decoder& decoder, const std::vector<int32_t>& ids) {
  const torch::NoGradGuard no_grad;
  const auto length = static_cast<int64_t>(ids.size());
  const torch::Tensor tokens = torch::tensor(std::vector<int64_t>(ids.begin(), ids.end())).to(decoder.device());
  const torch::Tensor starts = torch::tensor({0, static_cast<int>(length)}, torch::kInt32).to(decoder.device());
  const auto attention = [&](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    return std::get<0>(at::_flash_attention_forward(q.contiguous(), k.contiguous(), v.contiguous(), starts, starts,
                                                    length, length, 0.0, true, false));
  };
  const torch::Tensor states = decoder.final_norm(
      decoder.run_layers(decoder.embed(tokens), torch::arange(length, torch::kInt64).to(decoder.device()), attention));
  const torch::Tensor logits = decoder.logits(states).slice(0, 0, length - 1).to(torch::kFloat64);
  return torch::log_softmax(logits, -1).gather(1, tokens.slice(0, 1).unsqueeze(1)).squeeze(1).cpu();
}

struct Gap {
  double mean = 0, most = 0;
};

// Of what was drawn against the trainer's way.
Gap gap_to_trainer(GpuModel& local, Forward& forward, uint64_t seed, int64_t tokens = 40) {
  Local executor(forward);
  const auto vocab = static_cast<uint64_t>(local.config.vocab_size);
  std::vector<Asked> asked;
  for (uint64_t i = 0; i < 16; ++i) {
    Asked one;
    for (uint64_t k = 0; k < 1 + i; ++k) one.prompt.push_back(static_cast<int32_t>(mix_key(seed, i, k) % vocab));
    one.sampling.max_tokens = tokens;
    one.sampling.seed = seed + i;
    asked.push_back(one);
  }
  const auto choices = generate(executor, asked, in_order(asked.size()));
  Gap gap;
  int64_t count = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    std::vector<int32_t> ids = asked[i].prompt;
    ids.insert(ids.end(), choices[i].token_ids.begin(), choices[i].token_ids.end());
    const torch::Tensor trained = trained_logprobs(local.decoder, ids);
    for (std::size_t k = 0; k < choices[i].logprobs.size(); ++k) {
      const double own = choices[i].logprobs[k];
      const double difference =
          std::abs(own - trained[static_cast<int64_t>(asked[i].prompt.size() - 1 + k)].item<double>());
      gap.mean += difference;
      gap.most = std::max(gap.most, difference);
      ++count;
    }
  }
  gap.mean /= static_cast<double>(count);
  return gap;
}

}  // namespace

TEST_CASE("in float32 greedy ids equal the CPU's and log-probs agree, for every architecture, replayed or not") {
  for (const std::string& name : reference_names()) {
    CAPTURE(name);
    LocalModel host(name);
    HostForward expected_forward(host.decoder, 1, {32, kPositions, 16, LogprobsMode::processed});
    Local expected_executor(expected_forward);
    const std::vector<Asked> asked = mixed_requests(40, true);
    const auto expected = run(expected_executor, asked, in_order(asked.size()));
    GpuModel local(name, tensor::DType::f32);
    for (const bool graphs : {true, false}) {
      CAPTURE(graphs);
      const auto forward = local.forward(32, false, graphs);
      Local executor(*forward);
      const auto found = run(executor, asked, in_order(asked.size()));
      CHECK((forward->replayed_steps() > 0) == graphs);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        CAPTURE(i);
        REQUIRE(found[i].choices[0].token_ids == expected[i].choices[0].token_ids);
        for (std::size_t k = 0; k < found[i].choices[0].logprobs.size(); ++k)
          CHECK(std::abs(found[i].choices[0].logprobs[k] - expected[i].choices[0].logprobs[k]) < 1e-4f);
        REQUIRE(found[i].prompt_logprobs.size() == expected[i].prompt_logprobs.size());
        for (std::size_t k = 0; k < found[i].prompt_logprobs.size(); ++k)
          CHECK(std::abs(found[i].prompt_logprobs[k].logprob - expected[i].prompt_logprobs[k].logprob) < 1e-4f);
      }
    }
  }
}

TEST_CASE("in bfloat16 log-probs of what is drawn stay near the trainer's, and nearer when deterministic") {
  for (const std::string& name : reference_names()) {
    GpuModel local(name, tensor::DType::bf16);
    const auto forward = local.forward(32, false, true);
    const Gap usual = gap_to_trainer(local, *forward, 1);
    const auto in_order_of_trainer = local.forward(32, true, true);
    const Gap deterministic = gap_to_trainer(local, *in_order_of_trainer, 1);
    std::printf("%s: log-prob gap to the trainer's way in bf16: mean %.6f, largest %.6f; deterministic %.6f, %.6f\n",
                name.c_str(), usual.mean, usual.most, deterministic.mean, deterministic.most);
    CHECK(usual.mean < 0.02);
    CHECK(deterministic.mean <= usual.mean);
  }
}

TEST_CASE("the gap to the trainer of a Qwen3-0.6B shape over long sequences; none when both are deterministic") {
  GpuModel local(arch::shape("qwen3-0.6b"));
  const auto usual_forward = local.forward(16, false, true, 512);
  const Gap usual = gap_to_trainer(local, *usual_forward, 1, 400);
  local.decoder.set_rows_per_product(256);
  const auto deterministic_forward = local.forward(16, true, true, 512);
  const Gap deterministic = gap_to_trainer(local, *deterministic_forward, 1, 400);
  std::printf("Qwen3-0.6B shape, 400 tokens: mean %.6f, largest %.6f; deterministic %.9f, %.9f\n", usual.mean,
              usual.most, deterministic.mean, deterministic.most);
  CHECK(usual.mean < 0.02);
  // What is left is the last step, log softmax in double against float32 sums.
  CHECK(deterministic.most < 1e-5);
}

TEST_CASE("deterministic: the same prompt alone, among many and in shuffled arrival gives the same bits") {
  GpuModel local("qwen3", tensor::DType::bf16);
  const auto forward = local.forward(32, true, true);
  Local executor(*forward);
  const std::vector<Asked> asked = mixed_requests(100, false);
  const auto together = generate(executor, asked, in_order(asked.size()));
  std::vector<std::size_t> shuffled;
  for (const uint64_t i : permutation(asked.size(), 99)) shuffled.push_back(i);
  const auto in_other_order = generate(executor, asked, shuffled);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    CAPTURE(i);
    CHECK(together[i].token_ids == in_other_order[i].token_ids);
    CHECK(together[i].logprobs == in_other_order[i].logprobs);
  }
  for (const std::size_t i : {0, 17, 63, 99}) {
    const auto alone = generate(executor, {asked[i]}, {0});
    CHECK(alone[0].token_ids == together[i].token_ids);
    CHECK(alone[0].logprobs == together[i].logprobs);
  }
}

TEST_CASE("a replayed step gives what the same step gives launched kernel by kernel") {
  GpuModel local("qwen3", tensor::DType::bf16);
  constexpr int64_t kTokens = 20;
  std::vector<Asked> asked = mixed_requests(4, false);  // as many as a captured size: no padding
  for (Asked& one : asked) {
    one.sampling.max_tokens = kTokens;
    one.sampling.stop_token_ids = {};
  }
  std::vector<std::vector<engine::Choice>> choices;
  for (const bool graphs : {true, false}) {
    CAPTURE(graphs);
    const auto forward = local.forward(8, false, graphs);
    Local executor(*forward);
    choices.push_back(generate(executor, asked, in_order(asked.size())));
    // All but those of the prompts.
    if (graphs) CHECK(forward->replayed_steps() >= kTokens - 2);
    if (!graphs) CHECK(forward->replayed_steps() == 0);
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    CAPTURE(i);
    REQUIRE(choices[0][i].token_ids.size() == static_cast<std::size_t>(kTokens));
    CHECK(choices[0][i].token_ids == choices[1][i].token_ids);
    // A library may choose another kernel while it is captured, whose sums have another order: what bf16 makes of that.
    for (std::size_t k = 0; k < choices[0][i].logprobs.size(); ++k)
      CHECK(std::abs(choices[0][i].logprobs[k] - choices[1][i].logprobs[k]) < 0.02f);
  }
}

TEST_CASE("sleep gives the memory back, and what was kept is there after waking") {
  GpuModel local("llama", tensor::DType::bf16);
  auto weights = make_gpu_weights(uint64_t{1} << 30);
  std::vector<uint64_t> words(1 << 20), found(1 << 20);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = mix_key(3, i);
  gpu::copy_memory(weights->data(), words.data(), words.size() * 8);
  const std::byte* const address = weights->data();
  const auto forward = local.forward(32, false, true);
  const engine::Batch batch{{{3, 0, 0}}, {engine::SampleSpec{}}};
  const engine::Sampled before = forward->run(batch, true).at(0);
  const uint64_t awake = gpu::memory_info().free_bytes;
  forward->sleep();
  weights->sleep(1);
  const uint64_t asleep = gpu::memory_info().free_bytes;
  CHECK(asleep - awake >= uint64_t{1} << 30);
  weights->wake();
  forward->wake();
  CHECK(weights->data() == address);
  gpu::copy_memory(found.data(), weights->data(), found.size() * 8);
  CHECK(found == words);
  const engine::Sampled after = forward->run(batch, true).at(0);
  CHECK(after.token == before.token);
  CHECK(after.logprob == before.logprob);
  weights->sleep(2);
  CHECK(gpu::memory_info().free_bytes >= awake + (uint64_t{1} << 30) - (uint64_t{64} << 20));
}

TEST_CASE("attention of single rows agrees with float64 for every shape that has a kernel") {
  const torch::NoGradGuard no_grad;
  struct Shape {
    int64_t heads, kv_heads, dim, positions;
    torch::ScalarType type;
  };
  const std::vector<Shape> shapes = {{16, 8, 128, 1152, torch::kBFloat16}, {8, 8, 128, 200, torch::kBFloat16},
                                     {32, 4, 64, 700, torch::kFloat16},    {14, 2, 64, 300, torch::kBFloat16},
                                     {4, 2, 24, 64, torch::kBFloat16},     {4, 2, 80, 300, torch::kFloat32}};
  torch::manual_seed(1);
  for (const Shape& shape : shapes) {
    CAPTURE(shape.heads);
    CAPTURE(shape.dim);
    const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(device());
    const int64_t slots = 5, rows = 6;
    const torch::Tensor keys =
        torch::randn({slots, shape.positions, shape.kv_heads, shape.dim}, options).to(shape.type);
    const torch::Tensor values = torch::randn_like(keys);
    const torch::Tensor q = torch::randn({rows, shape.heads, shape.dim}, options).to(shape.type);
    torch::Tensor out = torch::full_like(q, 7);
    const std::vector<int> row_slots = {3, 0, 4, 1, 2, -1};
    const std::vector<int> lengths = {1, static_cast<int>(shape.positions), 63, 129, 64, 0};
    std::vector<int> used;
    for (const int length : lengths) used.push_back(std::min(length, static_cast<int>(shape.positions)));
    const torch::Tensor slot_tensor = torch::tensor(row_slots, torch::kInt32).to(device());
    const torch::Tensor length_tensor = torch::tensor(used, torch::kInt32).to(device());
    const gpu::KvShape kv{shape.positions, shape.kv_heads, shape.dim};
    const gpu::DeviceMemory workspace(gpu::attend_workspace_bytes(rows, shape.heads, kv));
    const gpu::KvType type = shape.type == torch::kBFloat16 ? gpu::KvType::bf16
                             : shape.type == torch::kHalf   ? gpu::KvType::f16
                                                            : gpu::KvType::f32;
    gpu::synchronize();
    gpu::attend_rows(q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(), workspace.data(),
                     {rows, slot_tensor.data_ptr<int>(), length_tensor.data_ptr<int>()}, shape.heads, kv, type,
                     nullptr);
    gpu::synchronize();
    for (std::size_t i = 0; i < used.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      if (used[i] == 0) {
        CHECK(out[row].abs().max().item<double>() == 0);
        continue;
      }
      const auto of = [&](const torch::Tensor& cache) {
        return cache[row_slots[i]]
            .slice(0, 0, used[i])
            .to(torch::kFloat64)
            .repeat_interleave(shape.heads / shape.kv_heads, 1)
            .transpose(0, 1);  // [heads, keys, dim]
      };
      const torch::Tensor scores =
          torch::matmul(of(keys), q[row].to(torch::kFloat64).unsqueeze(2)) / std::sqrt(static_cast<double>(shape.dim));
      const torch::Tensor expected = (torch::softmax(scores, 1) * of(values)).sum(1);
      // Half a unit in the last place of the output type, and float32 sums.
      const double unit = shape.type == torch::kBFloat16 ? 0x1p-8 : shape.type == torch::kHalf ? 0x1p-11 : 1e-5;
      const double error = (out[row].to(torch::kFloat64) - expected).abs().max().item<double>();
      CHECK(error < unit * std::max(1.0, expected.abs().max().item<double>()));
    }
  }
}

TEST_CASE("draws on the GPU are the CPU's, with every setting, on random logits of a large vocabulary") {
  const torch::NoGradGuard no_grad;
  int64_t different = 0, drawn = 0;
  for (const int64_t vocab : {int64_t{160}, int64_t{5000}, int64_t{151'936}}) {
    const int64_t rows = vocab > 100'000 ? 96 : 256;
    torch::manual_seed(static_cast<uint64_t>(vocab));
    torch::Tensor logits = torch::randn({rows, vocab}) * torch::linspace(0.1, 12, rows).unsqueeze(1);
    logits.slice(0, 0, rows / 4) = logits.slice(0, 0, rows / 4).to(torch::kBFloat16).to(torch::kFloat32);  // ties
    std::vector<engine::SampleSpec> specs;
    std::vector<gpu::SampleRow> settings;
    std::vector<int32_t> banned;
    for (int64_t i = 0; i < rows; ++i) {
      const auto pick = [&](uint64_t what, uint64_t of) { return mix_key(static_cast<uint64_t>(i), what) % of; };
      engine::SampleSpec spec;
      const float temperatures[] = {1.0f, 0.7f, 1.3f, 0.0f, 1.0f};
      spec.temperature = temperatures[pick(1, 5)];
      if (pick(2, 3) == 0) spec.top_p = 0.3f + 0.01f * static_cast<float>(pick(3, 70));
      if (pick(4, 3) == 0) spec.top_k = 1 + static_cast<int32_t>(pick(5, 60));
      if (pick(6, 4) == 0) spec.min_p = 0.001f * static_cast<float>(1 + pick(7, 200));
      if (pick(8, 6) == 0) spec.forced = static_cast<int32_t>(pick(9, static_cast<uint64_t>(vocab)));
      if (pick(10, 3) == 0) {
        for (uint64_t k = 0; k < 5; ++k)
          spec.banned.push_back(static_cast<int32_t>(pick(20 + k, static_cast<uint64_t>(vocab))));
        spec.banned.push_back(static_cast<int32_t>(logits[i].argmax().item<int64_t>()));
      }
      spec.seed = static_cast<uint64_t>(i);
      spec.step = 11;
      gpu::SampleRow setting;
      setting.temperature = spec.temperature;
      setting.top_p = spec.top_p;
      setting.min_p = spec.min_p;
      setting.top_k = spec.top_k;
      setting.forced = spec.forced;
      setting.uniform = uniform01(mix_key(spec.seed, static_cast<uint64_t>(spec.step)));
      setting.banned_begin = static_cast<int32_t>(banned.size());
      setting.banned_count = static_cast<int32_t>(spec.banned.size());
      banned.insert(banned.end(), spec.banned.begin(), spec.banned.end());
      specs.push_back(spec);
      settings.push_back(setting);
    }
    const torch::Tensor on_device = logits.to(device());
    const gpu::DeviceMemory setting_memory(settings.size() * sizeof(gpu::SampleRow));
    const gpu::DeviceMemory banned_memory(banned.size() * sizeof(int32_t) + 4);
    const gpu::DeviceMemory workspace(gpu::draw_workspace_bytes(rows, vocab));
    const gpu::DeviceMemory results(settings.size() * sizeof(gpu::DrawnRow));
    gpu::copy_memory(setting_memory.data(), settings.data(), setting_memory.bytes());
    gpu::copy_memory(banned_memory.data(), banned.data(), banned.size() * sizeof(int32_t));
    for (const LogprobsMode mode : {LogprobsMode::processed, LogprobsMode::raw}) {
      gpu::draw_rows(on_device.data_ptr(), gpu::LogitType::f32, rows, vocab,
                     reinterpret_cast<const gpu::SampleRow*>(setting_memory.data()),
                     reinterpret_cast<const int32_t*>(banned_memory.data()), mode == LogprobsMode::raw,
                     workspace.data(), reinterpret_cast<gpu::DrawnRow*>(results.data()), nullptr);
      gpu::synchronize();
      std::vector<gpu::DrawnRow> found(settings.size());
      gpu::copy_memory(found.data(), results.data(), results.bytes());
      for (int64_t i = 0; i < rows; ++i) {
        CAPTURE(vocab);
        CAPTURE(i);
        const engine::SampleSpec& spec = specs[static_cast<std::size_t>(i)];
        const gpu::DrawnRow& own = found[static_cast<std::size_t>(i)];
        const float* const row = logits.data_ptr<float>() + i * vocab;
        const engine::Sampled expected =
            spec.forced >= 0 ? look_up(row, vocab, spec.forced) : draw(row, vocab, spec, mode);
        ++drawn;
        CHECK(own.bad_token == -1);
        if (own.token != expected.token) {
          ++different;
          continue;
        }
        CHECK(std::abs(own.logprob - expected.logprob) < 1e-5f * (1 + std::abs(expected.logprob)));
        CHECK(own.rank == expected.rank);
        CHECK(own.top_token == expected.top_token);
        CHECK(std::abs(own.top_logprob - expected.top_logprob) < 1e-5f * (1 + std::abs(expected.top_logprob)));
      }
    }
    torch::Tensor broken = on_device.clone();
    broken[1][3] = std::numeric_limits<float>::quiet_NaN();
    broken[1][9] = std::numeric_limits<float>::infinity();
    gpu::draw_rows(broken.data_ptr(), gpu::LogitType::f32, rows, vocab,
                   reinterpret_cast<const gpu::SampleRow*>(setting_memory.data()),
                   reinterpret_cast<const int32_t*>(banned_memory.data()), false, workspace.data(),
                   reinterpret_cast<gpu::DrawnRow*>(results.data()), nullptr);
    gpu::DrawnRow bad[2];
    gpu::synchronize();
    gpu::copy_memory(bad, results.data(), sizeof bad);
    CHECK(bad[0].bad_token == -1);
    CHECK(bad[1].bad_token == 3);
  }
  // The borders between tokens differ in the last bits of a double: a draw falls between them once in some 10^12.
  CHECK(different == 0);
  CHECK(drawn > 1000);
}
