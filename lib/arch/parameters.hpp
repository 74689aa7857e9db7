// The parameters of a model under their Hugging Face names, how tensor parallelism cuts each, and where each lies in a
// rank's arena. Trainer, engine, push and planner all take names, shapes and cuts from here.
#pragma once

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

struct Parameter {
  tensor::TensorInfo full;  // HF name and whole shape
  Cut cut = Cut::replicated;
  int64_t rows_per_head = 0;  // head_dim where the cut must keep attention heads whole (q, k, v, o), else 0
};

// All parameters in checkpoint order: embeddings, layers in order, final norm, head (absent when tied).
std::vector<Parameter> parameters(const ModelConfig& config, tensor::DType dtype);
// Of the whole model.
int64_t parameter_count(const ModelConfig& config);
uint64_t parameter_bytes(const ModelConfig& config, tensor::DType dtype);

// Part of a parameter that one tensor-parallel rank holds.
struct Shard {
  int dim = 0;        // the dimension that is cut; 0 and the whole range when replicated
  int64_t begin = 0;  // in the full tensor
  int64_t end = 0;
  bool owner = true;    // false when a lower rank holds the same part: sums over shards count owners only
  tensor::Shape shape;  // local shape
};

// Throws Error{refused} when tp_size does not divide the heads (or kv heads neither divide nor are divided by it, or
// intermediate size).
Shard shard_of(const Parameter& parameter, int tp_rank, int tp_size);

// A rank's shards, one behind the other, each at a multiple of 64 bytes.
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

// Copies a shard's part of a full row-major tensor (`full`) to `local`, both contiguous. Pure byte copy.
void copy_shard(const std::byte* full, const tensor::TensorInfo& info, const Shard& shard, std::byte* local);

}  // namespace vime::arch
