#include "torch_doctest.hpp"

#include <torch/utils.h>
#include <cmath>
#include <cstring>
#include <limits>

#include "algo/reduce.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "base/random.hpp"
#include "model/checkpoint.hpp"
#include "model/decoder.hpp"
#include "trainer/optimizer.hpp"
#include "trainer/policy_step.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

struct TinyModel {
  arch::ModelConfig config = arch::preset("tiny", 18);
  std::vector<std::byte> arena{arch::arena_layout(config, tensor::DType::f32, 0, 1).total_bytes};
  model::Decoder decoder{config, tensor::DType::f32, model::single_rank(), arena.data()};

  explicit TinyModel(uint64_t seed) {
    model::init_weights(decoder, seed);
    decoder.require_grad(true);
  }
};

// Six samples of different lengths, one with an empty response, one with a masked token.
rollout::TrainBatch make_batch() {
  rollout::TrainBatch batch;
  const int64_t responses[] = {4, 2, 0, 3, 4, 1};
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t prompt = 3 + i % 3;
    batch.sample_indices.push_back(i);
    batch.lengths.push_back(prompt + responses[i]);
    batch.response_lengths.push_back(responses[i]);
    batch.advantages.push_back(i % 2 == 0 ? 0.7 : -1.1);
    for (int64_t t = 0; t < prompt + responses[i]; ++t) {
      batch.tokens.push_back(static_cast<int64_t>(mix_key(1, static_cast<uint64_t>(i), static_cast<uint64_t>(t)) % 18));
    }
    for (int64_t t = 0; t < responses[i]; ++t) {
      batch.loss_mask.push_back(i == 4 && t == 1 ? 0 : 1);
      batch.rollout_logprobs.push_back(-2.5);
    }
  }
  return batch;
}

const rollout::MicroBatch kAll = {0, 1, 2, 3, 4, 5};

std::vector<double> logprobs_of(const TinyModel& model, const BatchView& view, double temperature = 1.0) {
  PolicyOptions options;
  options.temperature = temperature;
  return PolicyStep(options).logprobs(model.decoder, view, std::vector<rollout::MicroBatch>{kAll});
}

FixedLogprobs old_of(const TinyModel& model, const BatchView& view, double temperature = 1.0) {
  return {logprobs_of(model, view, temperature), {}};
}

PolicyFigures backward(const model::Decoder& decoder, const BatchView& view, const rollout::MicroBatch& samples,
                       const FixedLogprobs& fixed, double denominator, const PolicyOptions& options) {
  return PolicyStep(options).backward(decoder, view, std::vector<rollout::MicroBatch>{samples}, fixed, denominator);
}

double denominator_of(const rollout::TrainBatch& batch) {
  return algo::loss_denominator(algo::Reducer::sample_mean, batch.loss_mask, batch.response_lengths);
}

}  // namespace

TEST_CASE("with old log-probs of the same weights the KL of the first step is exactly zero, with others it is not") {
  TinyModel model(1), other(2);
  const rollout::TrainBatch batch = make_batch();
  const BatchView view(batch);
  Optimizer optimizer(model.decoder, {});
  const auto same = backward(model.decoder, view, kAll, old_of(model, view), denominator_of(batch), {});
  CHECK(same.terms.ppo_kl_abs == 0.0);
  CHECK(same.terms.ppo_kl == 0.0);
  // The fault that --ci-test is there to find: old log-probs of other weights.
  const auto different = backward(model.decoder, view, kAll, old_of(other, view), denominator_of(batch), {});
  CHECK(different.terms.ppo_kl_abs > 1e-6);
}

TEST_CASE("micro-batches add up to the gradient and the figures of the whole batch") {
  TinyModel model(1);
  const rollout::TrainBatch batch = make_batch();
  const BatchView view(batch);
  PolicyOptions options;
  options.entropy_coef = 0.01;
  Optimizer optimizer(model.decoder, {});
  const FixedLogprobs old = old_of(model, view);
  const auto whole = backward(model.decoder, view, kAll, old, denominator_of(batch), options);
  const torch::Tensor expected = optimizer.flat_gradient().clone();
  CHECK(expected.norm().item<double>() > 1e-3);
  optimizer.zero_gradient();
  double loss = 0.0;
  for (const rollout::MicroBatch& part : std::vector<rollout::MicroBatch>{{0, 5}, {2}, {1, 3, 4}}) {
    loss += backward(model.decoder, view, part, old, denominator_of(batch), options).terms.loss;
  }
  CHECK(loss == doctest::Approx(whole.terms.loss).epsilon(1e-5));
  const double difference = (optimizer.flat_gradient() - expected).norm().item<double>();
  CHECK(difference < 1e-5 * expected.norm().item<double>());
}

TEST_CASE("the gradient is the derivative of the loss") {
  TinyModel model(3);
  const rollout::TrainBatch batch = make_batch();
  const BatchView view(batch);
  PolicyOptions options;
  options.entropy_coef = 0.1;
  options.temperature = 0.8;
  Optimizer optimizer(model.decoder, {});
  const FixedLogprobs old = old_of(model, view, 0.8);
  const auto loss = [&] {
    optimizer.zero_gradient();
    return backward(model.decoder, view, kAll, old, denominator_of(batch), options).terms.loss;
  };
  loss();
  const torch::Tensor gradient = optimizer.flat_gradient().clone();
  const torch::Tensor direction = gradient / gradient.norm();
  const auto move = [&](double by) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < model.decoder.parameters().size(); ++i) {
      torch::Tensor& value = model.decoder.parameters()[i].value;
      const auto offset = static_cast<int64_t>(model.decoder.layout().entries[i].offset / sizeof(float));
      value.add_(direction.narrow(0, offset, value.numel()).view(value.sizes()), by);
    }
  };
  // Central difference; float32 forward passes leave about 1e-7 / step of noise, the third derivative about step^2.
  const double step = 1e-2;
  move(step);
  const double up = loss();
  move(-2 * step);
  const double down = loss();
  CHECK((up - down) / (2 * step) == doctest::Approx(gradient.norm().item<double>()).epsilon(0.01));
}

TEST_CASE("AdamW follows its equations, clips by the global norm, and leaves weights alone on a bad gradient") {
  TinyModel model(1);
  OptimizerOptions options;
  options.schedule.lr = 0.01;
  options.weight_decay = 0.1;
  options.clip_grad = 1.0;
  Optimizer optimizer(model.decoder, options);
  const auto first_matrix = [&] { return model.decoder.parameters().front().value.flatten()[0].item<double>(); };
  const int64_t elements = optimizer.flat_gradient().numel();
  double weight = first_matrix(), m = 0, v = 0;
  for (int step = 1; step <= 3; ++step) {
    optimizer.flat_gradient().fill_(0.5);
    const double norm = 0.5 * std::sqrt(static_cast<double>(elements));
    const auto result = optimizer.step();
    CHECK(result.applied);
    CHECK(result.grad_norm == doctest::Approx(norm).epsilon(1e-9));
    const double g = 0.5 / (norm + 1e-6);
    m = options.beta1 * m + (1 - options.beta1) * g;
    v = options.beta2 * v + (1 - options.beta2) * g * g;
    weight *= 1 - options.schedule.lr * options.weight_decay;
    weight -= options.schedule.lr * (m / (1 - std::pow(options.beta1, step))) /
              (std::sqrt(v / (1 - std::pow(options.beta2, step))) + options.eps);
    CHECK(first_matrix() == doctest::Approx(weight).epsilon(1e-5));
  }
  const double before = first_matrix();
  optimizer.flat_gradient()[elements - 1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(optimizer.step().applied);
  CHECK(first_matrix() == before);
}

// Gradients that do not depend on the weights, so that the masters of both are the same numbers.
TEST_CASE("weights that are kept rounded are those of the master, rounded, which steps on as if nothing were lost") {
  for (const OptimizerType type : {OptimizerType::adam, OptimizerType::sgd}) {
    TinyModel exact(1), rounded(1);
    OptimizerOptions options;
    options.type = type;
    options.schedule.lr = 1e-4;  // some updates are below half the spacing of bfloat16, others above
    options.weight_decay = 0.1;
    const torch::NoGradGuard no_grad;
    for (model::Decoder::Named& parameter : exact.decoder.parameters()) {
      parameter.value.copy_(parameter.value.to(torch::kBFloat16));
    }
    Optimizer of_exact(exact.decoder, options), of_rounded(rounded.decoder, options);
    of_rounded.round_weights(torch::kBFloat16);
    CHECK(torch::equal(of_rounded.weights(), of_exact.weights()));
    const torch::Tensor first = of_exact.weights().clone();
    for (int step = 0; step < 3; ++step) {
      torch::manual_seed(step);
      of_exact.flat_gradient().normal_();
      of_rounded.flat_gradient().copy_(of_exact.flat_gradient());
      of_exact.step();
      of_rounded.round_weights(torch::kBFloat16);
      of_rounded.step();
      CHECK(torch::equal(of_rounded.whole_state("master"), of_exact.weights()));
      CHECK(torch::equal(of_rounded.weights(), of_exact.weights().to(torch::kBFloat16).to(torch::kFloat32)));
    }
    const int64_t moved = of_rounded.weights().ne(first).sum().item<int64_t>();
    CHECK(moved > 0);
    CHECK(moved < of_exact.weights().ne(first).sum().item<int64_t>());
  }
}

TEST_CASE("weights are rounded before the first step or not at all") {
  TinyModel model(1);
  Optimizer optimizer(model.decoder, {});
  optimizer.step();
  CHECK_THROWS_AS(optimizer.round_weights(torch::kBFloat16), Error);
}

TEST_CASE("norms and biases do not decay") {
  TinyModel model(1);
  OptimizerOptions options;
  options.schedule.lr = 0.1;
  options.weight_decay = 0.5;
  Optimizer optimizer(model.decoder, options);
  std::vector<torch::Tensor> before;
  for (auto& parameter : model.decoder.parameters()) before.push_back(parameter.value.detach().clone());
  optimizer.zero_gradient();
  optimizer.step();
  for (size_t i = 0; i < before.size(); ++i) {
    const auto& parameter = model.decoder.parameters()[i];
    const double factor = parameter.value.dim() >= 2 ? 0.95 : 1.0;
    CHECK(torch::allclose(parameter.value.detach(), before[i] * factor, 1e-6, 1e-7));
  }
}

TEST_CASE("supervised training follows the mean log-prob of the responses and needs no old log-probs") {
  TinyModel model(4);
  const rollout::TrainBatch batch = make_batch();
  const BatchView view(batch);
  PolicyOptions options;
  options.loss.type = algo::PolicyLossType::sft;
  Optimizer optimizer(model.decoder, {});
  const auto result = backward(model.decoder, view, kAll, {}, denominator_of(batch), options);
  // By hand: each sample's mean negative log-prob over its masked tokens, added up and divided by the six samples.
  const std::vector<double> logprobs = logprobs_of(model, view);
  double expected = 0.0;
  for (size_t i = 0; i < 6; ++i) {
    double sum = 0.0, tokens = 0.0;
    for (int64_t t = view.response_offsets[i]; t < view.response_offsets[i + 1]; ++t) {
      if (batch.loss_mask[static_cast<size_t>(t)] == 0) continue;
      sum -= logprobs[static_cast<size_t>(t)];
      tokens += 1;
    }
    if (tokens > 0) expected += sum / tokens / 6;
  }
  CHECK(result.terms.loss == doctest::Approx(expected).epsilon(1e-6));
  CHECK(result.terms.ppo_kl_abs == 0.0);
  CHECK(optimizer.flat_gradient().norm().item<double>() > 1e-3);
}

TEST_CASE("the KL to the reference model is zero for the same weights and moves the loss and the gradient for others") {
  TinyModel model(1), other(2);
  const rollout::TrainBatch batch = make_batch();
  const BatchView view(batch);
  PolicyOptions options;
  options.loss.kl_type = algo::KlType::k3;
  options.loss.kl_loss_coef = 0.5;
  Optimizer optimizer(model.decoder, {});
  FixedLogprobs fixed = old_of(model, view);
  const auto plain = backward(model.decoder, view, kAll, fixed, denominator_of(batch), {});
  const torch::Tensor without = optimizer.flat_gradient().clone();
  fixed.reference = fixed.old;
  optimizer.zero_gradient();
  const auto same = backward(model.decoder, view, kAll, fixed, denominator_of(batch), options);
  CHECK(same.terms.kl_loss == 0.0);
  CHECK(torch::equal(optimizer.flat_gradient(), without));
  fixed.reference = logprobs_of(other, view);
  optimizer.zero_gradient();
  const auto different = backward(model.decoder, view, kAll, fixed, denominator_of(batch), options);
  CHECK(different.terms.kl_loss > 1e-3);
  CHECK(different.terms.loss == doctest::Approx(plain.terms.loss + 0.5 * different.terms.kl_loss).epsilon(1e-9));
  CHECK_FALSE(torch::equal(optimizer.flat_gradient(), without));
}

TEST_CASE("an optimizer that was saved and read goes on bit by bit, and another model's state is refused") {
  const TempDir folder;
  const fs::path file = folder.path() / "optimizer.safetensors";
  OptimizerOptions options;
  options.schedule = {algo::LrDecayStyle::linear, 0.01, 0.0, 2, 9};
  const auto train = [&](Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      for (int64_t i = 0; i < 8; ++i) optimizer.flat_gradient()[i * 100] = 0.1 * (step + 1) - 0.03 * i;
      if (step == 3) optimizer.flat_gradient()[0] = std::numeric_limits<float>::quiet_NaN();
      CHECK(optimizer.step().applied == (step != 3));
      optimizer.zero_gradient();
    }
  };
  TinyModel unbroken(1), resumed(1), halved(1);
  Optimizer whole(unbroken.decoder, options);
  train(whole, 0, 8);
  Optimizer first(halved.decoder, options);
  train(first, 0, 5);
  std::vector<torch::Tensor> moments;
  std::vector<tensor::TensorView> views;
  for (const std::string& name : first.state_names()) {
    moments.push_back(first.whole_state(name));
    for (const arch::ArenaEntry& entry : halved.decoder.layout().entries) {
      views.push_back({{name + "." + entry.parameter.full.name, tensor::DType::f32, entry.shard.shape},
                       static_cast<const std::byte*>(moments.back().data_ptr()) + entry.offset});
    }
  }
  tensor::write_safetensors(file, views, first.counters());
  std::memcpy(resumed.arena.data(), halved.arena.data(), halved.arena.size());
  Optimizer second(resumed.decoder, options);
  second.load(tensor::SafetensorsFile(file));
  CHECK(second.steps() == 5);
  train(second, 5, 8);
  CHECK(std::memcmp(resumed.arena.data(), unbroken.arena.data(), unbroken.arena.size()) == 0);

  const arch::ModelConfig config = arch::preset("tiny", 20);
  std::vector<std::byte> arena(arch::arena_layout(config, tensor::DType::f32, 0, 1).total_bytes);
  model::Decoder larger(config, tensor::DType::f32, model::single_rank(), arena.data());
  Optimizer other(larger, options);
  CHECK_THROWS_WITH_AS(other.load(tensor::SafetensorsFile(file)), doctest::Contains("expected float32"), Error);
}

TEST_CASE("a float32 run goes on from the float32 weights of a run in another type, not from its rounded ones") {
  const TempDir folder;
  const fs::path file = folder.path() / "optimizer.safetensors";
  TinyModel exact(1), rounded(1);
  std::vector<tensor::TensorView> views;
  const torch::Tensor moment = torch::full({static_cast<int64_t>(exact.arena.size())}, 0.25, torch::kFloat32);
  for (const arch::ArenaEntry& entry : exact.decoder.layout().entries) {
    const std::string& name = entry.parameter.full.name;
    for (const char* state : {"exp_avg.", "exp_avg_sq."}) {
      views.push_back(
          {{state + name, tensor::DType::f32, entry.shard.shape}, static_cast<const std::byte*>(moment.data_ptr())});
    }
    views.push_back({{"master." + name, tensor::DType::f32, entry.shard.shape}, exact.arena.data() + entry.offset});
  }
  tensor::write_safetensors(file, views, {{"steps", "3"}, {"applied_steps", "2"}});
  const torch::NoGradGuard no_grad;
  for (model::Decoder::Named& parameter : rounded.decoder.parameters()) {
    parameter.value.copy_(parameter.value.to(torch::kBFloat16));
  }
  CHECK(std::memcmp(rounded.arena.data(), exact.arena.data(), exact.arena.size()) != 0);
  Optimizer optimizer(rounded.decoder, {});
  optimizer.load(tensor::SafetensorsFile(file));
  CHECK(std::memcmp(rounded.arena.data(), exact.arena.data(), exact.arena.size()) == 0);
  CHECK(optimizer.steps() == 3);
}
