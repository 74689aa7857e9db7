#include "model/decoder.hpp"

#include <unordered_map>

#include "base/error.hpp"
#include "model/fused.hpp"
#include "model/fused_kernels.hpp"
#include "model/linear.hpp"
#include "model/main_gradient.hpp"
#include "model/parallel.hpp"
#include "model/recompute.hpp"
#include "model/rotary.hpp"

namespace vime::model {
namespace {

// Weight and, where the architecture has one, bias of a projection. Local shards.
struct Linear {
  torch::Tensor weight;
  torch::Tensor bias;
};

struct Layer {
  torch::Tensor input_norm;
  Linear q, k, v, o;
  Linear qkv;  // q, k and v as one, where there is such a view of them
  torch::Tensor q_norm, k_norm;
  torch::Tensor post_attention_norm;
  Linear gate, up, down;
  Linear gate_up;  // likewise
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
  State(arch::ModelConfig model, tensor::DType dtype, CollectivesPtr ranks, std::byte* arena, const arch::Stage& part,
        bool split_rows, torch::Device where);

  torch::Tensor attention_block(int index, const Layer& layer, const Normed& normed, const Rotary::Angles& angles,
                                const Attention& attention) const;
  torch::Tensor mlp_block(const Layer& layer, const Normed& normed) const;
  torch::Tensor embed(const torch::Tensor& ids) const;
  // Before and behind what tensor parallelism cuts: all rows in, each rank's partial sums out.
  torch::Tensor enter(const torch::Tensor& x) const { return sequence_parallel ? gather_rows(x, tp) : shared(x); }
  torch::Tensor leave(const torch::Tensor& partial) const {
    return sequence_parallel ? sum_to_rows(partial, tp) : sum_over_ranks(partial, tp);
  }
  torch::Tensor project(const Linear& by, const torch::Tensor& x, const MakeAgain& again = {}) const {
    return linear(x, by.weight, by.bias, rows_per_product, again);
  }
  // A row-parallel projection: the bias belongs to the sum, so it is added once, after it.
  torch::Tensor project_and_leave(const Linear& by, const torch::Tensor& x, const MakeAgain& again = {}) const;
  torch::Tensor leave_with_bias(const torch::Tensor& partial, const torch::Tensor& bias) const;
  Residual run_layer(std::size_t i, const Residual& in, const Rotary::Angles& angles, const Attention& attention) const;
  // How to make a norm's output again, where it is not kept.
  MakeAgain norm_again(const torch::Tensor& sum, const torch::Tensor& weight) const;
  bool makes_again() const {
    return recompute == arch::Recompute::selective && device.is_cuda() && torch::GradMode::is_enabled();
  }
  // What the ranks use each for a part of the output only: gradients of all ranks add up.
  torch::Tensor shared(const torch::Tensor& x) const {
    return sequence_parallel ? x : share_with_ranks(x, tp, tp->size());
  }
  Linear shared_kv(const Linear& linear) const;
  Layer make_layer(int64_t index);
  Linear joined(const std::vector<std::string>& names);
  torch::Tensor named(const std::string& name) const;
  torch::Tensor named_if(bool present, const std::string& name) const {
    return present ? named(name) : torch::Tensor();
  }

  arch::ModelConfig config;
  CollectivesPtr tp;
  arch::Stage stage;
  bool sequence_parallel;
  std::byte* arena;
  torch::Device device;
  arch::ArenaLayout layout;
  std::vector<Named> parameters;
  // Neighbours in the arena seen as one matrix; gradients reach them through these where a layer uses them.
  struct Joined {
    uint64_t offset = 0;  // bytes
    torch::Tensor value;
  };
  std::vector<Joined> views;
  int64_t rows_per_product = 0;
  arch::Recompute recompute = arch::Recompute::none;
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Layer> layers;  // of the stage
  torch::Tensor embedding;
  int64_t vocab_begin = 0;
  torch::Tensor final_norm;
  torch::Tensor head;
  int kv_sharers = 1;  // neighbouring ranks that hold the same key/value head
  mutable Rotary rotary;
};

Decoder::State::State(arch::ModelConfig model, tensor::DType dtype, CollectivesPtr ranks, std::byte* memory,
                      const arch::Stage& part, bool split_rows, torch::Device where)
    : config(std::move(model)),
      tp(std::move(ranks)),
      stage(part),
      sequence_parallel(split_rows && tp->size() > 1),
      arena(memory),
      device(where),
      layout(arch::arena_layout(config, dtype, tp->rank(), tp->size(), stage)),
      rotary(config, device) {
  const auto options = torch::TensorOptions().dtype(scalar_type(dtype)).device(device);
  for (const arch::ArenaEntry& entry : layout.entries) {
    by_name[entry.parameter.full.name] = parameters.size();
    parameters.push_back(
        {entry.parameter.full.name, torch::from_blob(arena + entry.offset, entry.shard.shape, options)});
  }
  for (const arch::ArenaEntry& entry : layout.entries) {
    if (entry.parameter.cut == arch::Cut::vocab_rows) vocab_begin = entry.shard.begin;
    if (entry.parameter.cut == arch::Cut::kv_rows) kv_sharers = arch::sharers_of(entry.parameter, tp->size());
  }
  const bool tied = config.tie_word_embeddings;
  embedding = named_if(stage.first() || (stage.last() && tied), "model.embed_tokens.weight");
  for (int64_t i = stage.begin; i < stage.end; ++i) layers.push_back(make_layer(i));
  final_norm = named_if(stage.last(), "model.norm.weight");
  head = tied ? embedding : named_if(stage.last(), "lm_head.weight");
}

torch::Tensor Decoder::State::named(const std::string& name) const {
  const auto found = by_name.find(name);
  VIME_CHECK(found != by_name.end(), "no parameter \"" + name + "\"");
  return parameters[found->second].value;
}

// The weights as one [rows of all, columns], undefined where they do not lie one behind the other, or are on the CPU,
// where one product's bits would not be three's.
Linear Decoder::State::joined(const std::vector<std::string>& names) {
  if (!device.is_cuda()) return {};
  const arch::ArenaEntry* first = nullptr;
  uint64_t end = 0;
  int64_t rows = 0;
  for (const std::string& name : names) {
    const arch::ArenaEntry& entry = layout.entries[by_name.at(name)];
    if (first == nullptr) first = &entry;
    if (first != &entry && entry.offset != end) return {};
    end = entry.offset + entry.bytes;
    rows += entry.shard.shape[0];
  }
  const auto options = torch::TensorOptions().dtype(parameters.front().value.scalar_type()).device(device);
  views.push_back({first->offset, torch::from_blob(arena + first->offset, {rows, first->shard.shape[1]}, options)});
  return {views.back().value, {}};
}

Layer Decoder::State::make_layer(int64_t index) {
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
  const std::string qkv = prefix + "self_attn.";
  if (!config.qkv_bias && (kv_sharers == 1 || sequence_parallel))
    layer.qkv = joined({qkv + "q_proj.weight", qkv + "k_proj.weight", qkv + "v_proj.weight"});
  if (!config.mlp_bias) layer.gate_up = joined({prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"});
  return layer;
}

torch::Tensor Decoder::State::project_and_leave(const Linear& by, const torch::Tensor& x,
                                                const MakeAgain& again) const {
  if (tp->size() == 1) return project(by, x, again);
  return leave_with_bias(project({by.weight, {}}, x, again), by.bias);
}

torch::Tensor Decoder::State::leave_with_bias(const torch::Tensor& partial, const torch::Tensor& bias) const {
  const torch::Tensor sum = leave(partial);
  return bias.defined() ? sum + bias : sum;
}

MakeAgain Decoder::State::norm_again(const torch::Tensor& sum, const torch::Tensor& weight) const {
  if (!makes_again() || tp->size() > 1) return {};  // with several ranks it would be gathered again as well
  return [sum = sum.detach(), weight, epsilon = config.rms_norm_eps] {
    return add_rms_norm(sum, {}, weight, epsilon).normal;
  };
}

Linear Decoder::State::shared_kv(const Linear& linear) const {
  if (kv_sharers == 1 || sequence_parallel) return linear;
  return {share_with_ranks(linear.weight, tp, kv_sharers),
          linear.bias.defined() ? share_with_ranks(linear.bias, tp, kv_sharers) : torch::Tensor()};
}

torch::Tensor Decoder::State::embed(const torch::Tensor& ids) const {
  if (tp->size() == 1) return embedding_rows(embedding, ids);
  const int64_t rows = embedding.size(0);
  // A part without rows adds nothing, but has to stay in the graph: the backward pass is collective.
  if (rows == 0) return leave(torch::zeros({ids.size(0), config.hidden_size}, embedding.options()) + embedding.sum());
  const torch::Tensor local = ids - vocab_begin;
  const torch::Tensor foreign = (local < 0).logical_or_(local >= rows);
  return leave(own_embedding_rows(embedding, local.masked_fill(foreign, -1)));
}

torch::Tensor Decoder::State::attention_block(int index, const Layer& layer, const Normed& normed,
                                              const Rotary::Angles& angles, const Attention& attention) const {
  const torch::Tensor in = enter(normed.normal);
  const MakeAgain again = norm_again(normed.sum, layer.input_norm);
  HeadNorms norms;
  if (config.qk_norm) norms = {shared(layer.q_norm), shared(layer.k_norm), config.rms_norm_eps};
  Heads heads;
  if (layer.qkv.weight.defined()) {
    heads = norm_and_rotate(project(layer.qkv, in, again), layer.q.weight.size(0), config.head_dim, norms, angles);
  } else {
    const torch::Tensor q = project(layer.q, in, again);
    const torch::Tensor k = project(shared_kv(layer.k), in, again);
    heads = norm_and_rotate(q, k, project(shared_kv(layer.v), in, again), config.head_dim, norms, angles);
  }
  const torch::Tensor out = attention(index, heads.q, heads.k, heads.v);
  return project_and_leave(layer.o, out.reshape({in.size(0), layer.q.weight.size(0)}));
}

torch::Tensor Decoder::State::mlp_block(const Layer& layer, const Normed& normed) const {
  const torch::Tensor in = enter(normed.normal);
  const MakeAgain again = norm_again(normed.sum, layer.post_attention_norm);
  if (layer.gate_up.weight.defined()) {
    const torch::Tensor gate_up = project(layer.gate_up, in, again);
    if (makes_again() && fused_kernels_fit(device, gate_up.scalar_type())) {
      return leave_with_bias(swiglu_product(gate_up, layer.down.weight, rows_per_product), layer.down.bias);
    }
    MakeAgain product_again;
    if (makes_again()) product_again = [both = gate_up.detach()] { return swiglu(both); };
    return project_and_leave(layer.down, swiglu(gate_up), product_again);
  }
  const torch::Tensor gate = project(layer.gate, in, again);
  const torch::Tensor up = project(layer.up, in, again);
  MakeAgain product_again;
  if (makes_again()) product_again = [g = gate.detach(), u = up.detach()] { return swiglu(g, u); };
  return project_and_leave(layer.down, swiglu(gate, up), product_again);
}

Decoder::Residual Decoder::State::run_layer(std::size_t i, const Residual& in, const Rotary::Angles& angles,
                                            const Attention& attention) const {
  const Layer& layer = layers[i];
  const int index = static_cast<int>(stage.begin) + static_cast<int>(i);
  const Normed before_attention = add_rms_norm(in.x, in.delta, layer.input_norm, config.rms_norm_eps);
  const Normed before_mlp =
      add_rms_norm(before_attention.sum, attention_block(index, layer, before_attention, angles, attention),
                   layer.post_attention_norm, config.rms_norm_eps);
  return {before_mlp.sum, mlp_block(layer, before_mlp)};
}

Decoder::Decoder(arch::ModelConfig config, tensor::DType dtype, CollectivesPtr tp, std::byte* arena,
                 torch::Device device)
    : Decoder(config, dtype, std::move(tp), arena, arch::whole_model(config), false, device) {}

Decoder::Decoder(arch::ModelConfig config, tensor::DType dtype, CollectivesPtr tp, std::byte* arena,
                 const arch::Stage& stage, bool sequence_parallel, torch::Device device)
    : state_(
          std::make_shared<State>(std::move(config), dtype, std::move(tp), arena, stage, sequence_parallel, device)) {}

void Decoder::check_tokens(const torch::Tensor& ids, const torch::Tensor& positions) const {
  const auto check_range = [](const torch::Tensor& values, const std::string& what, int64_t end,
                              const std::string& of) {
    if (values.numel() == 0) return;
    const int64_t low = values.min().item<int64_t>();
    const int64_t high = values.max().item<int64_t>();
    VIME_CHECK(low >= 0 && high < end,
               what + " " + std::to_string(low < 0 ? low : high) + " is outside " + of + std::to_string(end));
  };
  check_range(ids, "token id", state_->config.vocab_size, "the vocabulary of ");
  check_range(positions, "position", state_->config.max_position_embeddings, "max_position_embeddings = ");
  if (positions.numel() > 0) state_->rotary.reserve(positions.max().item<int64_t>() + 1);
}

torch::Tensor Decoder::embed(const torch::Tensor& ids) const {
  VIME_CHECK(state_->stage.first(), "embeddings are looked up on the first stage");
  return state_->embed(ids);
}

torch::Tensor Decoder::Residual::whole() const {
  return delta.defined() ? x + delta : x;
}

Decoder::Residual Decoder::run_layers(const torch::Tensor& x, const torch::Tensor& positions,
                                      const Attention& attention) const {
  const int64_t sharers = state_->sequence_parallel ? state_->tp->size() : 1;
  VIME_CHECK(positions.dim() == 1 && x.size(0) * sharers == positions.size(0), "one position for each row");
  const Rotary::Angles angles = state_->rotary.angles(positions, x.options().requires_grad(false));
  Residual rows = {x, {}};
  for (std::size_t i = 0; i < state_->layers.size(); ++i) {
    if (state_->recompute != arch::Recompute::full) {
      rows = state_->run_layer(i, rows, angles, attention);
      continue;
    }
    // One tensor to keep for each layer, not two.
    const auto layer = [state = state_, i, angles, attention](const torch::Tensor& in) {
      return state->run_layer(i, {in, {}}, angles, attention).whole();
    };
    rows.x = recomputed(layer, rows.x);
  }
  return rows;
}

torch::Tensor Decoder::final_norm(const Residual& rows) const {
  VIME_CHECK(state_->stage.last(), "the final norm is on the last stage");
  return add_rms_norm(rows.x, rows.delta, state_->final_norm, state_->config.rms_norm_eps).normal;
}

torch::Tensor Decoder::hidden_states(const torch::Tensor& ids, const torch::Tensor& positions,
                                     const Attention& attention) const {
  check_tokens(ids, positions);
  return final_norm(run_layers(embed(ids.to(state_->device)), positions.to(state_->device), attention));
}

torch::Tensor Decoder::logits(const torch::Tensor& hidden) const {
  VIME_CHECK(!state_->sequence_parallel, "logits of all rows need all rows");
  const torch::Tensor mine = state_->project({state_->head, {}}, state_->shared(hidden)).to(torch::kFloat32);
  return gather_columns(mine, state_->tp, state_->config.vocab_size);
}

torch::Tensor Decoder::local_logits(const torch::Tensor& hidden, const torch::Tensor& selected) const {
  return state_->project({state_->head, {}}, head_rows(hidden, selected)).to(torch::kFloat32);
}

torch::Tensor Decoder::head_rows(const torch::Tensor& hidden, const torch::Tensor& selected) const {
  return state_->enter(hidden).index_select(0, selected);
}

const torch::Tensor& Decoder::head() const {
  return state_->head;
}

int64_t Decoder::vocab_begin() const {
  return state_->vocab_begin;
}

const CollectivesPtr& Decoder::tensor_parallel() const {
  return state_->tp;
}

std::byte* Decoder::arena() const {
  return state_->arena;
}

torch::Device Decoder::device() const {
  return state_->device;
}

torch::ScalarType Decoder::dtype() const {
  return state_->parameters.front().value.scalar_type();
}

void Decoder::set_rows_per_product(int64_t rows) {
  VIME_CHECK(rows >= 0, std::to_string(rows) + " rows in a product");
  state_->rows_per_product = rows;
}

int64_t Decoder::rows_per_product() const {
  return state_->rows_per_product;
}

void Decoder::set_recompute(arch::Recompute recompute) {
  state_->recompute = recompute;
}

std::vector<Decoder::Named>& Decoder::parameters() {
  return state_->parameters;
}
const std::vector<Decoder::Named>& Decoder::parameters() const {
  return state_->parameters;
}

void Decoder::require_grad(bool on) {
  for (Named& parameter : state_->parameters) parameter.value.set_requires_grad(on);
  for (State::Joined& view : state_->views) view.value.set_requires_grad(on);
}

void Decoder::set_gradients(const torch::Tensor& flat) {
  const auto part = [&](uint64_t offset, const torch::Tensor& value) {
    if (!flat.defined()) return torch::Tensor();
    const auto begin = static_cast<int64_t>(offset / value.element_size());
    return flat.narrow(0, begin, value.numel()).view(value.sizes());
  };
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    torch::Tensor& value = state_->parameters[i].value;
    set_main_gradient(value, part(state_->layout.entries[i].offset, value));
  }
  for (State::Joined& view : state_->views) set_main_gradient(view.value, part(view.offset, view.value));
}

const arch::ModelConfig& Decoder::config() const {
  return state_->config;
}
const arch::ArenaLayout& Decoder::layout() const {
  return state_->layout;
}

}  // namespace vime::model
