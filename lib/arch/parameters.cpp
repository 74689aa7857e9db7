#include "arch/parameters.hpp"

#include <algorithm>
#include <cstring>

#include "arch/parallel_sizes.hpp"
#include "base/error.hpp"

namespace vime::arch {
namespace {

constexpr uint64_t kArenaAlignment = 64;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

class Builder {
 public:
  explicit Builder(tensor::DType dtype) : dtype_(dtype) {}

  // Of what is added from here on.
  void at(Place place, int64_t layer = 0) {
    place_ = place;
    layer_ = layer;
  }
  void add(const std::string& name, tensor::Shape shape, Cut cut, int64_t rows_per_head = 0) {
    made_.push_back({{name, dtype_, std::move(shape)}, cut, rows_per_head, place_, layer_});
  }
  // A bias of a projection whose rows are cut is cut with them; one whose columns are cut is added after the sum, by
  // all alike.
  void linear(const std::string& name, int64_t out, int64_t in, Cut cut, bool bias, int64_t rows_per_head = 0) {
    add(name + ".weight", {out, in}, cut, rows_per_head);
    if (!bias) return;
    if (cut == Cut::columns) {
      add(name + ".bias", {out}, Cut::replicated);
    } else {
      add(name + ".bias", {out}, cut, rows_per_head);
    }
  }
  std::vector<Parameter> take() { return std::move(made_); }

 private:
  tensor::DType dtype_;
  Place place_ = Place::embedding;
  int64_t layer_ = 0;
  std::vector<Parameter> made_;
};

void add_layer(Builder& build, const ModelConfig& config, const std::string& prefix) {
  const int64_t hidden = config.hidden_size;
  const int64_t head_dim = config.head_dim;
  const int64_t q_rows = config.num_attention_heads * head_dim;
  const int64_t kv_rows = config.num_key_value_heads * head_dim;
  const std::string attention = prefix + "self_attn.";
  build.add(prefix + "input_layernorm.weight", {hidden}, Cut::replicated);
  build.linear(attention + "q_proj", q_rows, hidden, Cut::rows, config.qkv_bias, head_dim);
  build.linear(attention + "k_proj", kv_rows, hidden, Cut::kv_rows, config.qkv_bias, head_dim);
  build.linear(attention + "v_proj", kv_rows, hidden, Cut::kv_rows, config.qkv_bias, head_dim);
  build.linear(attention + "o_proj", hidden, q_rows, Cut::columns, config.output_bias, head_dim);
  if (config.qk_norm) {
    build.add(attention + "q_norm.weight", {head_dim}, Cut::replicated);
    build.add(attention + "k_norm.weight", {head_dim}, Cut::replicated);
  }
  build.add(prefix + "post_attention_layernorm.weight", {hidden}, Cut::replicated);
  build.linear(prefix + "mlp.gate_proj", config.intermediate_size, hidden, Cut::rows, config.mlp_bias);
  build.linear(prefix + "mlp.up_proj", config.intermediate_size, hidden, Cut::rows, config.mlp_bias);
  build.linear(prefix + "mlp.down_proj", hidden, config.intermediate_size, Cut::columns, config.mlp_bias);
}

void cut_evenly(const Parameter& parameter, int tp_rank, int tp_size, Shard& shard) {
  const int64_t size = parameter.full.shape[static_cast<std::size_t>(shard.dim)];
  const int64_t units = parameter.rows_per_head > 0 ? size / parameter.rows_per_head : size;
  VIME_CHECK(units % tp_size == 0, parameter.full.name + " is cut over " + std::to_string(tp_size) + " ranks");
  shard.begin = size / tp_size * tp_rank;
  shard.end = shard.begin + size / tp_size;
}

void cut_kv_heads(const Parameter& parameter, int tp_rank, int tp_size, Shard& shard) {
  const int64_t heads = parameter.full.shape[0] / parameter.rows_per_head;
  if (heads % tp_size == 0) return cut_evenly(parameter, tp_rank, tp_size, shard);
  VIME_CHECK(tp_size % heads == 0, parameter.full.name + " is shared by " + std::to_string(tp_size) + " ranks");
  const int sharers = sharers_of(parameter, tp_size);
  shard.begin = tp_rank / sharers * parameter.rows_per_head;
  shard.end = shard.begin + parameter.rows_per_head;
  shard.copy = tp_rank % sharers;
}

void cut_vocabulary(const Parameter& parameter, int tp_rank, int tp_size, Shard& shard) {
  const int64_t rows = parameter.full.shape[0];
  const int64_t part = (rows + tp_size - 1) / tp_size;
  shard.begin = std::min(rows, part * tp_rank);
  shard.end = std::min(rows, part * (tp_rank + 1));
}

}  // namespace

std::vector<Parameter> parameters(const ModelConfig& config, tensor::DType dtype) {
  Builder build(dtype);
  build.at(Place::embedding);
  build.add("model.embed_tokens.weight", {config.vocab_size, config.hidden_size}, Cut::vocab_rows);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    build.at(Place::layer, layer);
    add_layer(build, config, "model.layers." + std::to_string(layer) + ".");
  }
  build.at(Place::head);
  build.add("model.norm.weight", {config.hidden_size}, Cut::replicated);
  if (!config.tie_word_embeddings)
    build.add("lm_head.weight", {config.vocab_size, config.hidden_size}, Cut::vocab_rows);
  return build.take();
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  for (const Parameter& parameter : parameters(config, tensor::DType::f32))
    count += tensor::element_count(parameter.full.shape);
  return count;
}

uint64_t parameter_bytes(const ModelConfig& config, tensor::DType dtype) {
  return static_cast<uint64_t>(parameter_count(config)) * tensor::element_bytes(dtype);
}

Stage stage_of(const ModelConfig& config, int rank, int size) {
  VIME_CHECK(size > 0 && rank >= 0 && rank < size, "stage " + std::to_string(rank) + " of " + std::to_string(size));
  require_pipeline_parallel(config, size);
  const int64_t layers = config.num_hidden_layers;
  const int64_t part = layers / size;
  const int64_t larger = layers % size;  // stages that have one layer more
  Stage stage{rank, size, 0, 0};
  stage.begin = part * rank + std::min<int64_t>(rank, larger);
  stage.end = stage.begin + part + (rank < larger ? 1 : 0);
  return stage;
}

Stage whole_model(const ModelConfig& config) {
  return {0, 1, 0, config.num_hidden_layers};
}

bool holds(const Stage& stage, const Parameter& parameter, const ModelConfig& config) {
  switch (parameter.place) {
    case Place::embedding:
      return stage.first() || (stage.last() && config.tie_word_embeddings);
    case Place::layer:
      return parameter.layer >= stage.begin && parameter.layer < stage.end;
    case Place::head:
      return stage.last();
  }
  return false;
}

int sharers_of(const Parameter& parameter, int tp_size) {
  if (parameter.cut == Cut::replicated) return tp_size;
  if (parameter.cut != Cut::kv_rows) return 1;
  return static_cast<int>(std::max<int64_t>(1, tp_size / (parameter.full.shape[0] / parameter.rows_per_head)));
}

Shard shard_of(const Parameter& parameter, int tp_rank, int tp_size) {
  VIME_CHECK(tp_size > 0 && tp_rank >= 0 && tp_rank < tp_size,
             "tensor-parallel rank " + std::to_string(tp_rank) + " of " + std::to_string(tp_size));
  Shard shard;
  shard.shape = parameter.full.shape;
  shard.dim = parameter.cut == Cut::columns ? 1 : 0;
  const auto dim = static_cast<std::size_t>(shard.dim);
  switch (parameter.cut) {
    case Cut::replicated:
      shard.end = parameter.full.shape[0];
      shard.copy = tp_rank;
      break;
    case Cut::rows:
    case Cut::columns:
      cut_evenly(parameter, tp_rank, tp_size, shard);
      break;
    case Cut::kv_rows:
      cut_kv_heads(parameter, tp_rank, tp_size, shard);
      break;
    case Cut::vocab_rows:
      cut_vocabulary(parameter, tp_rank, tp_size, shard);
      break;
  }
  shard.shape[dim] = shard.end - shard.begin;
  return shard;
}

ArenaLayout arena_layout(const ModelConfig& config, tensor::DType dtype, int tp_rank, int tp_size) {
  return arena_layout(config, dtype, tp_rank, tp_size, whole_model(config));
}

ArenaLayout arena_layout(const ModelConfig& config, tensor::DType dtype, int tp_rank, int tp_size, const Stage& stage) {
  require_tensor_parallel(config, tp_size);
  ArenaLayout layout;
  for (Parameter& parameter : parameters(config, dtype)) {
    if (!holds(stage, parameter, config)) continue;
    ArenaEntry entry;
    entry.shard = shard_of(parameter, tp_rank, tp_size);
    // The last stage's copy of tied embeddings comes behind all of the first stage's.
    if (parameter.place == Place::embedding && !stage.first()) entry.shard.copy += tp_size;
    entry.offset = layout.total_bytes;
    entry.bytes = static_cast<uint64_t>(tensor::element_count(entry.shard.shape)) * tensor::element_bytes(dtype);
    entry.parameter = std::move(parameter);
    layout.total_bytes = aligned(entry.offset + entry.bytes);
    layout.entries.push_back(std::move(entry));
  }
  return layout;
}

std::vector<std::vector<ArenaLayout>> replica_layouts(const ModelConfig& config, tensor::DType dtype, int tp_size,
                                                      int stages) {
  std::vector<std::vector<ArenaLayout>> layouts;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<ArenaLayout>& of_ranks = layouts.emplace_back();
    for (int rank = 0; rank < tp_size; ++rank)
      of_ranks.push_back(arena_layout(config, dtype, rank, tp_size, stage_of(config, stage, stages)));
  }
  return layouts;
}

Shard whole_of(const tensor::TensorInfo& full, const Shard& like) {
  Shard whole;
  whole.dim = like.dim;
  whole.end = full.shape.empty() ? 0 : full.shape[static_cast<std::size_t>(like.dim)];
  whole.shape = full.shape;
  return whole;
}

Overlap overlap_of(const tensor::TensorInfo& full, const Shard& from, const Shard& to) {
  if (full.shape.empty()) return {1, 1, 0, 1, 0, 1};
  VIME_CHECK(from.dim == to.dim, full.name + " is cut along two dimensions");
  const auto dim = static_cast<std::size_t>(from.dim);
  const int64_t begin = std::max(from.begin, to.begin), end = std::min(from.end, to.end);
  Overlap overlap;
  if (begin >= end) return overlap;
  uint64_t inner = 1;
  for (std::size_t i = dim + 1; i < full.shape.size(); ++i) inner *= static_cast<uint64_t>(full.shape[i]);
  overlap.rows = 1;
  for (std::size_t i = 0; i < dim; ++i) overlap.rows *= static_cast<uint64_t>(full.shape[i]);
  overlap.row = static_cast<uint64_t>(end - begin) * inner;
  overlap.from = static_cast<uint64_t>(begin - from.begin) * inner;
  overlap.from_pitch = static_cast<uint64_t>(from.end - from.begin) * inner;
  overlap.to = static_cast<uint64_t>(begin - to.begin) * inner;
  overlap.to_pitch = static_cast<uint64_t>(to.end - to.begin) * inner;
  return overlap;
}

void copy_overlap(const tensor::TensorInfo& full, const Shard& from, const std::byte* from_bytes, const Shard& to,
                  std::byte* to_bytes) {
  const Overlap overlap = overlap_of(full, from, to);
  const uint64_t element = tensor::element_bytes(full.dtype);
  for (uint64_t i = 0; i < overlap.rows; ++i) {
    std::memcpy(to_bytes + (overlap.to + i * overlap.to_pitch) * element,
                from_bytes + (overlap.from + i * overlap.from_pitch) * element, overlap.row * element);
  }
}

void copy_shard(const std::byte* full, const tensor::TensorInfo& info, const Shard& shard, std::byte* local) {
  copy_overlap(info, whole_of(info, shard), full, shard, local);
}

void place_shard(const std::byte* local, const tensor::TensorInfo& info, const Shard& shard, std::byte* full) {
  copy_overlap(info, shard, local, whole_of(info, shard), full);
}

}  // namespace vime::arch
