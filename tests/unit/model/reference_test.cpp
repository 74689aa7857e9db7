// Against transformers: tests/data/models holds five random models with logits, log-probs, gradients and greedy
// continuations that torch 2.11 and transformers 5.17 computed in float32.
#include <torch/utils.h>
#include <mutex>

#include "base/error.hpp"
#include "models.hpp"
#include "ranks.hpp"
#include "torch_doctest.hpp"

using namespace vime;
using namespace vime::model;

namespace {

constexpr const char* kNames[] = {"llama", "llama_rope_scaled", "qwen2", "qwen3", "qwen3_tied_mha"};

// Both libraries round differently: with logits of the size of 1 and 2 or 3 layers in float32 a few 1e-7 of the largest
// is what agreement looks like. A wrong formula is off by 1e-2 or more.
constexpr double kLogitsTolerance = 1e-5;
constexpr double kGradientTolerance = 1e-4;

struct Result {
  torch::Tensor logits;
  torch::Tensor logprobs;
  double loss = 0;
  std::vector<torch::Tensor> gradients;
  std::vector<arch::Shard> shards;
  std::vector<std::string> names;
  torch::Tensor greedy;
};

Result forward_and_backward(Decoder& decoder, const tensor::SafetensorsFile& reference) {
  const torch::Tensor ids = stored(reference, "input_ids");
  const int64_t sequences = ids.size(0);
  const int64_t length = ids.size(1);
  const std::vector<int64_t> lengths(static_cast<std::size_t>(sequences), length);
  decoder.require_grad(true);
  const torch::Tensor hidden = decoder.hidden_states(ids.view(-1), positions_of(lengths), packed_attention(lengths));
  const torch::Tensor logits = decoder.logits(hidden).view({sequences, length, -1});
  const torch::Tensor next = ids.narrow(1, 1, length - 1).reshape({-1});
  const torch::Tensor rows = logits.narrow(1, 0, length - 1).reshape({next.size(0), -1});
  const torch::Tensor logprobs = token_logprobs(rows, next, 1.0, Entropy::none, 0, single_rank()).logprobs;
  const torch::Tensor weights = stored(reference, "weights").view(-1);
  const torch::Tensor loss = -(logprobs * weights).sum() / weights.sum();
  loss.backward();
  Result result;
  result.logits = logits.detach();
  result.logprobs = logprobs.detach().view({sequences, length - 1});
  result.loss = loss.item<double>();
  for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
    result.names.push_back(decoder.parameters()[i].name);
    result.gradients.push_back(decoder.parameters()[i].value.grad().clone());
    result.shards.push_back(decoder.layout().entries[i].shard);
  }
  return result;
}

torch::Tensor continue_greedily(const Decoder& decoder, const torch::Tensor& prompt, int64_t count) {
  const torch::NoGradGuard no_grad;
  torch::Tensor ids = prompt;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int64_t> lengths(static_cast<std::size_t>(ids.size(0)), ids.size(1));
    const torch::Tensor hidden =
        decoder.hidden_states(ids.reshape({-1}), positions_of(lengths), packed_attention(lengths))
            .view({ids.size(0), ids.size(1), -1});
    const torch::Tensor logits = decoder.logits(hidden.select(1, ids.size(1) - 1));
    ids = torch::cat({ids, logits.argmax(-1, true)}, 1);
  }
  return ids.narrow(1, prompt.size(1), count);
}

std::vector<Result> results_of(const std::string& name, int tp_size) {
  const arch::ModelConfig config = arch::read_config(models_dir() / name);
  std::vector<Result> results(static_cast<std::size_t>(tp_size));
  run_ranks(tp_size, [&](const std::shared_ptr<RankGroup>& group) {
    const tensor::SafetensorsFile reference(models_dir() / name / "reference.safetensors");
    OwnedDecoder owned(config, tp_size == 1 ? single_rank() : over_group(group));
    load_weights(owned.decoder, models_dir() / name);
    Result result = forward_and_backward(owned.decoder, reference);
    result.greedy = continue_greedily(owned.decoder, stored(reference, "prompt"), stored(reference, "greedy").size(1));
    results[static_cast<std::size_t>(group->rank())] = std::move(result);
  });
  return results;
}

// Puts the ranks' shards together. Ranks that hold the same part must have the same bits.
torch::Tensor whole_gradient(const std::vector<Result>& results, std::size_t parameter, const torch::Tensor& like) {
  torch::Tensor whole = torch::full_like(like, std::nan(""));
  for (const Result& result : results) {
    const arch::Shard& shard = result.shards[parameter];
    torch::Tensor place = whole.narrow(shard.dim, shard.begin, shard.end - shard.begin);
    if (shard.owner()) {
      place.copy_(result.gradients[parameter]);
    } else {
      CHECK_MESSAGE(place.equal(result.gradients[parameter]), "copies differ: ", result.names[parameter]);
    }
  }
  return whole;
}

void compare(const std::string& name, int tp_size) {
  CAPTURE(name);
  CAPTURE(tp_size);
  const tensor::SafetensorsFile reference(models_dir() / name / "reference.safetensors");
  const std::vector<Result> results = results_of(name, tp_size);
  for (const Result& result : results) {
    CHECK(relative_error(result.logits, stored(reference, "logits")) < kLogitsTolerance);
    CHECK(relative_error(result.logprobs, stored(reference, "logprobs")) < kLogitsTolerance);
    CHECK(result.loss == doctest::Approx(stored(reference, "loss").item<double>()).epsilon(1e-6));
    CHECK(result.greedy.equal(stored(reference, "greedy")));
    CHECK(result.logits.equal(results[0].logits));
  }
  std::size_t compared = 0;
  for (std::size_t i = 0; i < results[0].names.size(); ++i) {
    CAPTURE(results[0].names[i]);
    const torch::Tensor expected = stored(reference, "grad." + results[0].names[i]);
    const double error = relative_error(whole_gradient(results, i, expected), expected);
    CHECK(error < kGradientTolerance);
    ++compared;
  }
  std::size_t stored_gradients = 0;
  for (const auto& view : reference.tensors()) stored_gradients += view.info.name.starts_with("grad.") ? 1 : 0;
  CHECK(compared == stored_gradients);
}

}  // namespace

TEST_CASE("logits, gradients and greedy continuations are those of transformers on one rank") {
  for (const char* name : kNames) compare(name, 1);
}

TEST_CASE("logits, gradients and greedy continuations are those of transformers on two tensor-parallel ranks") {
  for (const char* name : kNames) compare(name, 2);
}

TEST_CASE("four ranks that share two key/value heads agree with transformers") {
  compare("qwen2", 4);  // with biases of q, k and v
  compare("qwen3", 4);  // with q and k norms
}

TEST_CASE("linear rope scaling by 2 gives position 2p the angles of position p") {
  arch::ModelConfig plain = small_config();
  arch::ModelConfig scaled = plain;
  scaled.rope_scaling = arch::RopeScaling{"linear", 2.0};
  OwnedDecoder a(plain, single_rank());
  OwnedDecoder b(scaled, single_rank());
  init_weights(a.decoder, 3);
  init_weights(b.decoder, 3);
  const torch::Tensor ids = torch::tensor({1, 5, 2, 7}, torch::kInt64);
  const torch::Tensor positions = torch::tensor({0, 3, 10, 11}, torch::kInt64);
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = a.decoder.hidden_states(ids, positions, packed_attention({4}));
  CHECK(relative_error(b.decoder.hidden_states(ids, positions * 2, packed_attention({4})), expected) < 1e-6);
  CHECK(relative_error(b.decoder.hidden_states(ids, positions, packed_attention({4})), expected) > 1e-4);
}

TEST_CASE("biases of every projection act once, whatever the number of ranks") {
  arch::ModelConfig config = small_config();
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.qk_norm = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  const torch::Tensor ids = torch::tensor({1, 5, 2, 7, 3}, torch::kInt64);
  const auto logits_of = [&](Decoder& decoder) {
    const torch::NoGradGuard no_grad;
    init_weights(decoder, 3);
    for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
      const auto& entry = decoder.layout().entries[i];
      if (!decoder.parameters()[i].name.ends_with(".bias")) continue;
      const torch::Tensor whole = torch::linspace(-1, 1, entry.parameter.full.shape[0]);
      decoder.parameters()[i].value.copy_(whole.narrow(0, entry.shard.begin, entry.shard.end - entry.shard.begin));
    }
    return decoder.logits(decoder.hidden_states(ids, positions_of({5}), packed_attention({5})));
  };
  OwnedDecoder alone(config, single_rank());
  const torch::Tensor expected = logits_of(alone.decoder);
  run_ranks(2, [&](const std::shared_ptr<RankGroup>& group) {
    OwnedDecoder owned(config, over_group(group));
    const double error = relative_error(logits_of(owned.decoder), expected);
    if (error > 1e-5) throw Error(ErrorKind::check_failed, "off by " + std::to_string(error));
  });
}

TEST_CASE("a vocabulary that leaves the last rank without rows still gives whole logits and gradients") {
  arch::ModelConfig config = small_config();
  config.vocab_size = 5;  // parts of 2, 2, 1 and 0
  const torch::Tensor ids = torch::tensor({0, 4, 2, 3, 1}, torch::kInt64);
  const auto run = [&](Decoder& decoder) {
    init_weights(decoder, 9);
    decoder.require_grad(true);
    const torch::Tensor logits = decoder.logits(decoder.hidden_states(ids, positions_of({5}), packed_attention({5})));
    token_logprobs(logits, ids.roll(-1), 1.0, Entropy::none, 0, single_rank()).logprobs.sum().backward();
    return logits.detach();
  };
  OwnedDecoder alone(config, single_rank());
  const torch::Tensor expected = run(alone.decoder);
  const torch::Tensor expected_gradient = alone.decoder.parameters()[0].value.grad();
  run_ranks(4, [&](const std::shared_ptr<RankGroup>& group) {
    OwnedDecoder owned(config, over_group(group));
    const double error = relative_error(run(owned.decoder), expected);
    if (error > 1e-5) throw Error(ErrorKind::check_failed, "logits off by " + std::to_string(error));
    const arch::Shard& shard = owned.decoder.layout().entries[0].shard;
    if (shard.begin == shard.end) return;
    const torch::Tensor part = expected_gradient.narrow(0, shard.begin, shard.end - shard.begin);
    const double gradient_error = relative_error(owned.decoder.parameters()[0].value.grad(), part);
    if (gradient_error > 1e-4)
      throw Error(ErrorKind::check_failed, "gradient off by " + std::to_string(gradient_error));
  });
}

TEST_CASE("token ids and positions outside the model are an error, not zeros") {
  OwnedDecoder owned(small_config(), single_rank());
  init_weights(owned.decoder, 1);
  const auto run = [&](int64_t id, int64_t position) {
    return owned.decoder.hidden_states(torch::tensor({id}, torch::kInt64), torch::tensor({position}, torch::kInt64),
                                       packed_attention({1}));
  };
  CHECK_NOTHROW(run(28, 255));
  CHECK_THROWS_AS(run(29, 0), Error);
  CHECK_THROWS_AS(run(-1, 0), Error);
  CHECK_THROWS_AS(run(0, 256), Error);
  CHECK_THROWS_AS(run(0, -1), Error);
}
