#include "model/decoder.hpp"

#include <unordered_map>

#include "base/error.hpp"
#include "model/parallel.hpp"
#include "model/rms_norm.hpp"
#include "model/rotary.hpp"

namespace vime::model {
namespace {

// Weight and, where the architecture has one, bias of a projection. Local shards.
struct Linear {
  torch::Tensor weight;
  torch::Tensor bias;

  torch::Tensor operator()(const torch::Tensor& x) const { return torch::linear(x, weight, bias); }
};

struct Layer {
  torch::Tensor input_norm;
  Linear q, k, v, o;
  torch::Tensor q_norm, k_norm;
  torch::Tensor post_attention_norm;
  Linear gate, up, down;
};

}  // namespace

torch::ScalarType scalar_type(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::f64:
      return torch::kFloat64;
    case tensor::DType::f32:
      return torch::kFloat32;
    case tensor::DType::f16:
      return torch::kFloat16;
    case tensor::DType::bf16:
      return torch::kBFloat16;
    case tensor::DType::i64:
      return torch::kInt64;
    case tensor::DType::i32:
      return torch::kInt32;
    case tensor::DType::i16:
      return torch::kInt16;
    case tensor::DType::i8:
      return torch::kInt8;
    case tensor::DType::u8:
      return torch::kUInt8;
    case tensor::DType::boolean:
      return torch::kBool;
  }
  throw Error(ErrorKind::internal, "no dtype has the number " + std::to_string(static_cast<int>(dtype)));
}

struct Decoder::State {
  State(arch::ModelConfig model, tensor::DType dtype, std::shared_ptr<TensorParallel> ranks, std::byte* arena);

  torch::Tensor attention_block(int index, const Layer& layer, const torch::Tensor& x, const Rotary::Angles& angles,
                                const Attention& attention) const;
  torch::Tensor mlp_block(const Layer& layer, const torch::Tensor& x) const;
  torch::Tensor embed(const torch::Tensor& ids) const;
  // A row-parallel projection: the bias belongs to the sum, so it is added once, after it.
  torch::Tensor project_and_sum(const Linear& linear, const torch::Tensor& x) const;
  // What the ranks use each for a part of the output only: gradients of all ranks add up.
  torch::Tensor shared(const torch::Tensor& x) const { return share_with_ranks(x, tp, tp->size()); }
  Linear shared_kv(const Linear& linear) const;
  Layer make_layer(int64_t index) const;
  torch::Tensor named(const std::string& name) const;
  torch::Tensor named_if(bool present, const std::string& name) const {
    return present ? named(name) : torch::Tensor();
  }

  arch::ModelConfig config;
  std::shared_ptr<TensorParallel> tp;
  arch::ArenaLayout layout;
  std::vector<Named> parameters;
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Layer> layers;
  torch::Tensor embedding;
  int64_t vocab_begin = 0;
  torch::Tensor final_norm;
  torch::Tensor head;
  int kv_sharers = 1;  // neighbouring ranks that hold the same key/value head
  mutable Rotary rotary;
};

Decoder::State::State(arch::ModelConfig model, tensor::DType dtype, std::shared_ptr<TensorParallel> ranks,
                      std::byte* arena)
    : config(std::move(model)),
      tp(std::move(ranks)),
      layout(arch::arena_layout(config, dtype, tp->rank(), tp->size())),
      rotary(config) {
  const auto options = torch::TensorOptions().dtype(scalar_type(dtype));
  for (const arch::ArenaEntry& entry : layout.entries) {
    by_name[entry.parameter.full.name] = parameters.size();
    parameters.push_back(
        {entry.parameter.full.name, torch::from_blob(arena + entry.offset, entry.shard.shape, options)});
  }
  if (tp->size() > config.num_key_value_heads) kv_sharers = static_cast<int>(tp->size() / config.num_key_value_heads);
  vocab_begin = layout.entries.front().shard.begin;
  embedding = named("model.embed_tokens.weight");
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.push_back(make_layer(i));
  final_norm = named("model.norm.weight");
  head = config.tie_word_embeddings ? embedding : named("lm_head.weight");
}

torch::Tensor Decoder::State::named(const std::string& name) const {
  const auto found = by_name.find(name);
  VIME_CHECK(found != by_name.end(), "no parameter \"" + name + "\"");
  return parameters[found->second].value;
}

Layer Decoder::State::make_layer(int64_t index) const {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const auto linear = [&](const std::string& name, bool bias) {
    return Linear{named(prefix + name + ".weight"), named_if(bias, prefix + name + ".bias")};
  };
  Layer layer;
  layer.input_norm = named(prefix + "input_layernorm.weight");
  layer.q = linear("self_attn.q_proj", config.qkv_bias);
  layer.k = linear("self_attn.k_proj", config.qkv_bias);
  layer.v = linear("self_attn.v_proj", config.qkv_bias);
  layer.o = linear("self_attn.o_proj", config.output_bias);
  layer.q_norm = named_if(config.qk_norm, prefix + "self_attn.q_norm.weight");
  layer.k_norm = named_if(config.qk_norm, prefix + "self_attn.k_norm.weight");
  layer.post_attention_norm = named(prefix + "post_attention_layernorm.weight");
  layer.gate = linear("mlp.gate_proj", config.mlp_bias);
  layer.up = linear("mlp.up_proj", config.mlp_bias);
  layer.down = linear("mlp.down_proj", config.mlp_bias);
  return layer;
}

torch::Tensor Decoder::State::project_and_sum(const Linear& linear, const torch::Tensor& x) const {
  if (tp->size() == 1) return linear(x);
  const torch::Tensor sum = sum_over_ranks(torch::linear(x, linear.weight), tp);
  return linear.bias.defined() ? sum + linear.bias : sum;
}

Linear Decoder::State::shared_kv(const Linear& linear) const {
  if (kv_sharers == 1) return linear;
  return {share_with_ranks(linear.weight, tp, kv_sharers),
          linear.bias.defined() ? share_with_ranks(linear.bias, tp, kv_sharers) : torch::Tensor()};
}

torch::Tensor Decoder::State::embed(const torch::Tensor& ids) const {
  if (ids.numel() > 0) {
    const int64_t low = ids.min().item<int64_t>();
    const int64_t high = ids.max().item<int64_t>();
    VIME_CHECK(low >= 0 && high < config.vocab_size, "token id " + std::to_string(low < 0 ? low : high) +
                                                         " is outside the vocabulary of " +
                                                         std::to_string(config.vocab_size));
  }
  if (tp->size() == 1) return torch::embedding(embedding, ids);
  const int64_t rows = embedding.size(0);
  if (rows == 0) return sum_over_ranks(torch::zeros({ids.size(0), config.hidden_size}, embedding.options()), tp);
  const torch::Tensor local = ids - vocab_begin;
  const torch::Tensor foreign = (local < 0).logical_or_(local >= rows);
  const torch::Tensor mine =
      torch::embedding(embedding, local.masked_fill(foreign, 0)).masked_fill(foreign.unsqueeze(1), 0);
  return sum_over_ranks(mine, tp);
}

torch::Tensor Decoder::State::attention_block(int index, const Layer& layer, const torch::Tensor& x,
                                              const Rotary::Angles& angles, const Attention& attention) const {
  const torch::Tensor in = shared(rms_norm(x, layer.input_norm, config.rms_norm_eps));
  const int64_t tokens = in.size(0);
  const auto heads = [&](const torch::Tensor& rows) {
    return rows.view({tokens, rows.size(1) / config.head_dim, config.head_dim});
  };
  torch::Tensor q = heads(layer.q(in));
  torch::Tensor k = heads(shared_kv(layer.k)(in));
  const torch::Tensor v = heads(shared_kv(layer.v)(in));
  if (config.qk_norm) {
    q = rms_norm(q, shared(layer.q_norm), config.rms_norm_eps);
    k = rms_norm(k, shared(layer.k_norm), config.rms_norm_eps);
  }
  const torch::Tensor out = attention(index, rotate(q, angles), rotate(k, angles), v);
  return project_and_sum(layer.o, out.reshape({tokens, q.size(1) * config.head_dim}));
}

torch::Tensor Decoder::State::mlp_block(const Layer& layer, const torch::Tensor& x) const {
  const torch::Tensor in = shared(rms_norm(x, layer.post_attention_norm, config.rms_norm_eps));
  return project_and_sum(layer.down, torch::silu(layer.gate(in)) * layer.up(in));
}

Decoder::Decoder(arch::ModelConfig config, tensor::DType dtype, std::shared_ptr<TensorParallel> tp, std::byte* arena)
    : state_(std::make_shared<State>(std::move(config), dtype, std::move(tp), arena)) {}

torch::Tensor Decoder::hidden_states(const torch::Tensor& ids, const torch::Tensor& positions,
                                     const Attention& attention) const {
  VIME_CHECK(ids.dim() == 1 && positions.dim() == 1 && ids.size(0) == positions.size(0),
             "ids and positions are [tokens]");
  torch::Tensor x = state_->embed(ids);
  const Rotary::Angles angles = state_->rotary.angles(positions, x.options().requires_grad(false));
  for (std::size_t i = 0; i < state_->layers.size(); ++i) {
    const Layer& layer = state_->layers[i];
    x = x + state_->attention_block(static_cast<int>(i), layer, x, angles, attention);
    x = x + state_->mlp_block(layer, x);
  }
  return rms_norm(x, state_->final_norm, state_->config.rms_norm_eps);
}

torch::Tensor Decoder::logits(const torch::Tensor& hidden) const {
  const torch::Tensor mine = torch::linear(state_->shared(hidden), state_->head).to(torch::kFloat32);
  return gather_columns(mine, state_->tp, state_->config.vocab_size);
}

std::vector<Decoder::Named>& Decoder::parameters() {
  return state_->parameters;
}
const std::vector<Decoder::Named>& Decoder::parameters() const {
  return state_->parameters;
}

void Decoder::require_grad(bool on) {
  for (Named& parameter : state_->parameters) parameter.value.set_requires_grad(on);
}

const arch::ModelConfig& Decoder::config() const {
  return state_->config;
}
const arch::ArenaLayout& Decoder::layout() const {
  return state_->layout;
}

}  // namespace vime::model
