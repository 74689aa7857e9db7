// The parameters of a model under their Hugging Face names, how tensor parallelism cuts each, which pipeline stages
// hold each, and where each lies in a rank's arena. Trainer, engine, push and planner all take names, shapes and cuts
// from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "tensor/tensor.hpp"

namespace vime::arch {

enum class Cut {
  replicated,  // every rank has all of it
  rows,        // dim 0 in equal parts (q, gate, up and their biases; attention heads stay whole)
  columns,     // dim 1 in equal parts (o, down)
  kv_rows,     // dim 0 by key/value heads; with fewer heads than ranks, neighbouring ranks share a copy of one head
  vocab_rows,  // dim 0 in parts of ceil(vocab / ranks); the last parts may be short or empty
};

enum class Place { embedding, layer, head };

struct Parameter {
  tensor::TensorInfo full;  // HF name and whole shape
  Cut cut = Cut::replicated;
  int64_t rows_per_head = 0;  // head_dim where the cut must keep attention heads whole (q, k, v, o), else 0
  Place place = Place::layer;
  int64_t layer = 0;  // of Place::layer
};

// All parameters in checkpoint order: embeddings, layers in order, final norm, head (absent when tied).
std::vector<Parameter> parameters(const ModelConfig& config, tensor::DType dtype);
// Of the whole model.
int64_t parameter_count(const ModelConfig& config);
uint64_t parameter_bytes(const ModelConfig& config, tensor::DType dtype);

// The consecutive layers that one pipeline stage runs. The first stage has the embeddings, the last the final norm and
// the head; a tied head is a copy of the embeddings, on the last stage as well.
struct Stage {
  int rank = 0;
  int size = 1;
  int64_t begin = 0;  // layers
  int64_t end = 0;
  bool first() const { return rank == 0; }
  bool last() const { return rank == size - 1; }
};

// Layers in parts as equal as possible, the larger ones first: 5 layers on 3 stages are 2, 2, 1. Error{refused} when
// there are fewer layers than stages.
Stage stage_of(const ModelConfig& config, int rank, int size);
// All layers.
Stage whole_model(const ModelConfig& config);
bool holds(const Stage& stage, const Parameter& parameter, const ModelConfig& config);

// Part of a parameter that one tensor-parallel rank holds.
struct Shard {
  int dim = 0;        // the dimension that is cut; 0 and the whole range when replicated
  int64_t begin = 0;  // in the full tensor
  int64_t end = 0;
  int copy = 0;         // how many lower ranks (of this stage, or of earlier ones) hold the same part
  tensor::Shape shape;  // local shape
  bool owner() const { return copy == 0; }  // sums over shards count owners only
};

// How many neighbouring tensor-parallel ranks hold the same part: all where it is replicated, some where there are more
// ranks than key/value heads, else 1.
int sharers_of(const Parameter& parameter, int tp_size);

// The size is one that the model can be cut into (parallel_sizes.hpp).
Shard shard_of(const Parameter& parameter, int tp_rank, int tp_size);

// A rank's shards, one behind the other, each at a multiple of 64 bytes. Error{refused} for a tensor-parallel size that
// the model cannot be cut into.
struct ArenaEntry {
  Parameter parameter;
  Shard shard;
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;   // of the shard
};
struct ArenaLayout {
  std::vector<ArenaEntry> entries;  // in checkpoint order
  uint64_t total_bytes = 0;
};
ArenaLayout arena_layout(const ModelConfig& config, tensor::DType dtype, int tp_rank, int tp_size);
// Of what the stage holds only.
ArenaLayout arena_layout(const ModelConfig& config, tensor::DType dtype, int tp_rank, int tp_size, const Stage& stage);
// Of all ranks of a replica: [stage][tensor-parallel rank].
std::vector<std::vector<ArenaLayout>> replica_layouts(const ModelConfig& config, tensor::DType dtype, int tp_size,
                                                      int stages);

// What two shards of one row-major tensor have in common, in elements: `rows` stretches of `row` elements, that begin
// at `from` in the one shard and at `to` in the other, and follow each other at these pitches. Nothing: no rows.
struct Overlap {
  uint64_t rows = 0;
  uint64_t row = 0;
  uint64_t from = 0, from_pitch = 0;
  uint64_t to = 0, to_pitch = 0;
  uint64_t elements() const { return rows * row; }
};
// Both are cut along the same dimension, as all shards of a parameter are.
Overlap overlap_of(const tensor::TensorInfo& full, const Shard& from, const Shard& to);
// The whole tensor as a shard, along the dimension that `like` is cut along.
Shard whole_of(const tensor::TensorInfo& full, const Shard& like);

// Copies what two shards of the tensor `full` have in common from the one to the other. Pure byte copy.
void copy_overlap(const tensor::TensorInfo& full, const Shard& from, const std::byte* from_bytes, const Shard& to,
                  std::byte* to_bytes);
// Copies a shard's part of a full row-major tensor (`full`) to `local`, both contiguous. Pure byte copy.
void copy_shard(const std::byte* full, const tensor::TensorInfo& info, const Shard& shard, std::byte* local);
// The way back.
void place_shard(const std::byte* local, const tensor::TensorInfo& info, const Shard& shard, std::byte* full);

}  // namespace vime::arch
