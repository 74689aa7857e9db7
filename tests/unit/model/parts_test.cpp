#include <torch/utils.h>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "model/fused.hpp"
#include "models.hpp"
#include "ranks.hpp"
#include "torch_doctest.hpp"

using namespace vime;
using namespace vime::model;

namespace {

// Attention of one sequence by its definition, in float64. q: [tokens, heads, dim], k and v: [tokens, kv heads, dim]
torch::Tensor plain_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  const int64_t group = q.size(1) / k.size(1);
  const torch::Tensor keys = k.repeat_interleave(group, 1).transpose(0, 1);
  const torch::Tensor values = v.repeat_interleave(group, 1).transpose(0, 1);
  torch::Tensor scores =
      torch::matmul(q.transpose(0, 1), keys.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
  const torch::Tensor later = torch::ones({q.size(0), q.size(0)}, torch::kBool).triu(1);
  scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  return torch::matmul(scores.softmax(-1), values).transpose(0, 1);
}

void compare_with_plain(const std::vector<int64_t>& lengths) {
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  torch::manual_seed(tokens);
  std::vector<torch::Tensor> wide;
  std::vector<torch::Tensor> narrow;
  for (const int64_t heads : {6, 2, 2}) {
    wide.push_back(torch::randn({tokens, heads, 8}, torch::kFloat64));
    narrow.push_back(wide.back().to(torch::kFloat32).requires_grad_(true));
    wide.back().requires_grad_(true);
  }
  const torch::Tensor direction = torch::randn({tokens, 6, 8}, torch::kFloat64);
  std::vector<torch::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    parts.push_back(plain_attention(wide[0].narrow(0, begin, length), wide[1].narrow(0, begin, length),
                                    wide[2].narrow(0, begin, length)));
    begin += length;
  }
  const torch::Tensor expected = torch::cat(parts);
  (expected * direction).sum().backward();
  const torch::Tensor found = packed_attention(lengths)(0, narrow[0], narrow[1], narrow[2]);
  (found * direction.to(torch::kFloat32)).sum().backward();
  // Sums of up to 1,100 products of numbers of the size of 1 in float32.
  CHECK(relative_error(found.to(torch::kFloat64), expected) < 2e-6);
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(relative_error(narrow[i].grad().to(torch::kFloat64), wide[i].grad()) < 5e-6);
  }
}

torch::Tensor parameter(const Decoder& decoder, const std::string& name) {
  for (const auto& entry : decoder.parameters()) {
    if (entry.name == name) return entry.value;
  }
  throw Error(ErrorKind::internal, "no parameter " + name);
}

}  // namespace

TEST_CASE("packed attention and its gradients equal the definition for sequences of one length") {
  compare_with_plain({9, 9, 9, 9});
  compare_with_plain({1, 1});
  compare_with_plain({5});
}

TEST_CASE("packed attention and its gradients equal the definition for mixed lengths, padded and in blocks") {
  compare_with_plain({3, 17, 1, 16, 40, 0, 33, 2});
  compare_with_plain({700, 20, 513, 1100});
}

TEST_CASE("packed attention refuses lengths that do not add up to the rows") {
  const torch::Tensor x = torch::zeros({5, 2, 4});
  CHECK_THROWS_AS(packed_attention({3, 3})(0, x, x, x), Error);
}

TEST_CASE("sequences packed together give what they give alone, and the same bits every time") {
  OwnedDecoder owned(arch::preset("tiny", 29), single_rank());
  init_weights(owned.decoder, 5);
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> lengths = {9, 4, 30, 9, 1};
  torch::manual_seed(1);
  const torch::Tensor ids = torch::randint(0, 29, {53}, torch::kInt64);
  const auto logits = [&](const torch::Tensor& some, const std::vector<int64_t>& of) {
    return owned.decoder.logits(owned.decoder.hidden_states(some, positions_of(of), packed_attention(of)));
  };
  const torch::Tensor packed = logits(ids, lengths);
  CHECK(packed.equal(logits(ids, lengths)));
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const torch::Tensor alone = logits(ids.narrow(0, begin, length), {length});
    // Relative to the largest logit: float32 keeps 6e-8 of it, and sums over 64 columns differ in their order.
    CHECK((packed.narrow(0, begin, length) - alone).abs().max().item<double>() <
          1e-6 * packed.abs().max().item<double>());
    begin += length;
  }
}

TEST_CASE("embedding rows of other ranks' tokens are zero and take no gradient") {
  torch::manual_seed(2);
  const torch::Tensor table = torch::randn({3, 4}).requires_grad_(true);
  const torch::Tensor found = own_embedding_rows(table, torch::tensor({-1, 2, 0, -1, 2}, torch::kInt64));
  CHECK(torch::equal(found, torch::stack({torch::zeros({4}), table[2], table[0], torch::zeros({4}), table[2]})));
  const torch::Tensor direction = torch::randn({5, 4});
  found.backward(direction);
  const torch::Tensor expected = torch::stack({direction[2], torch::zeros({4}), direction[1] + direction[4]});
  CHECK(torch::equal(table.grad(), expected));
}

TEST_CASE("token log-probs and entropies are those of the softmax, for extreme logits too") {
  // softmax([0, ln 3]) = [1/4, 3/4]
  const double ln3 = std::log(3.0);
  const torch::Tensor logits = torch::tensor({{0.0, ln3}, {1000.0, 1000.0 + ln3}, {-1e4, 1e4}}, torch::kFloat32);
  const TokenLogprobs result =
      token_logprobs(logits, torch::tensor({0, 1, 0}, torch::kInt64), 1.0, Entropy::differentiable, 0, single_rank());
  CHECK(result.logprobs[0].item<double>() == doctest::Approx(std::log(0.25)));
  CHECK(result.logprobs[1].item<double>() == doctest::Approx(std::log(0.75)).epsilon(1e-4));  // 1000 + ln 3 in float32
  CHECK(result.logprobs[2].item<double>() == doctest::Approx(-2e4));
  const double entropy = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75));
  CHECK(result.entropy[0].item<double>() == doctest::Approx(entropy));
  CHECK(result.entropy[2].item<double>() == doctest::Approx(0.0));
}

TEST_CASE("the temperature divides the logits and an entropy that nobody asked for is not computed") {
  // softmax([0, ln 9] / 2) = [1/4, 3/4]
  const torch::Tensor logits = torch::tensor({{0.0, std::log(9.0)}}, torch::kFloat32);
  const TokenLogprobs result =
      token_logprobs(logits, torch::tensor({1}, torch::kInt64), 2.0, Entropy::none, 0, single_rank());
  CHECK(result.logprobs[0].item<double>() == doctest::Approx(std::log(0.75)));
  CHECK_FALSE(result.entropy.defined());
  CHECK_THROWS_AS(token_logprobs(logits, torch::tensor({1}, torch::kInt64), 0.0, Entropy::none, 0, single_rank()),
                  Error);
}

TEST_CASE("the derivative of a token's log-prob is one-hot minus softmax") {
  const torch::Tensor logits = torch::tensor({{0.5, -1.0, 2.0}}, torch::kFloat32).requires_grad_(true);
  token_logprobs(logits, torch::tensor({2}, torch::kInt64), 1.0, Entropy::none, 0, single_rank())
      .logprobs.sum()
      .backward();
  const torch::Tensor expected = torch::tensor({{0.0, 0.0, 1.0}}) - logits.detach().softmax(-1);
  CHECK((logits.grad() - expected).abs().max().item<double>() < 1e-6);
}

TEST_CASE("initial weights are the same bits under every layout") {
  const arch::ModelConfig config = arch::preset("tiny", 29);
  OwnedDecoder alone(config, single_rank());
  init_weights(alone.decoder, 1234);
  for (const int size : {2, 4}) {
    run_ranks(size, [&](const std::shared_ptr<RankGroup>& group) {
      OwnedDecoder owned(config, over_group(group));
      init_weights(owned.decoder, 1234);
      for (std::size_t i = 0; i < owned.decoder.parameters().size(); ++i) {
        const arch::Shard& shard = owned.decoder.layout().entries[i].shard;
        const torch::Tensor part =
            alone.decoder.parameters()[i].value.narrow(shard.dim, shard.begin, shard.end - shard.begin);
        if (!part.equal(owned.decoder.parameters()[i].value)) {
          throw Error(ErrorKind::check_failed, owned.decoder.parameters()[i].name + " differs");
        }
      }
    });
  }
}

TEST_CASE("initial matrices are normal with initializer_range, norms one and biases zero") {
  arch::ModelConfig config = arch::preset("tiny", 29);
  config.qkv_bias = true;
  OwnedDecoder owned(config, single_rank());
  init_weights(owned.decoder, 7);
  const torch::Tensor gate = parameter(owned.decoder, "model.layers.1.mlp.gate_proj.weight") / config.initializer_range;
  // 8,192 draws: standard errors 0.011 of the mean, 0.008 of the deviation, 0.11 of the fourth moment (3 for a normal).
  CHECK(std::abs(gate.mean().item<double>()) < 0.04);
  CHECK(std::abs(gate.std().item<double>() - 1.0) < 0.03);
  CHECK(std::abs(gate.pow(4).mean().item<double>() - 3.0) < 0.4);
  CHECK(parameter(owned.decoder, "model.norm.weight").equal(torch::ones({64})));
  CHECK(parameter(owned.decoder, "model.layers.0.self_attn.q_norm.weight").equal(torch::ones({16})));
  CHECK(parameter(owned.decoder, "model.layers.0.self_attn.q_proj.bias").equal(torch::zeros({128})));
  // Neither neighbours, nor parameters, nor seeds repeat each other.
  const torch::Tensor up = parameter(owned.decoder, "model.layers.1.mlp.up_proj.weight") / config.initializer_range;
  CHECK(std::abs((gate * up).mean().item<double>()) < 0.04);
  CHECK(std::abs((gate.narrow(1, 0, 63) * gate.narrow(1, 1, 63)).mean().item<double>()) < 0.04);
  const torch::Tensor before = gate.clone();
  init_weights(owned.decoder, 8);
  CHECK(std::abs((before * parameter(owned.decoder, "model.layers.1.mlp.gate_proj.weight") / config.initializer_range)
                     .mean()
                     .item<double>()) < 0.04);
}

TEST_CASE("initial weights are the documented function of seed, name and index") {
  OwnedDecoder owned(small_config(), single_rank());
  init_weights(owned.decoder, 42);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  uint64_t key = 42;
  for (const char c : name) key = mix_key(key, static_cast<unsigned char>(c));
  const torch::Tensor flat = parameter(owned.decoder, name).view(-1);
  const double radius = std::sqrt(-2 * std::log(1 - uniform01(mix_key(key, 100))));
  const double angle = 2 * M_PI * uniform01(mix_key(key, 101));
  CHECK(flat[100].item<double>() == doctest::Approx(0.1 * radius * std::cos(angle)));
  CHECK(flat[101].item<double>() == doctest::Approx(0.1 * radius * std::sin(angle)));
}
