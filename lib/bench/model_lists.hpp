// The weights of public models as lists of names, shapes and cuts, made from their configurations. No weights.
#pragma once

#include <string>
#include <vector>

#include "arch/parameters.hpp"

namespace vime::bench {

struct ModelList {
  std::string name;                         // "qwen3-8b"
  std::vector<arch::Parameter> parameters;  // bfloat16, in checkpoint order
  bool tied_embeddings = false;
};

std::vector<std::string> model_names();
// Error{refused} naming those that there are.
ModelList model_list(const std::string& name);

// One tensor-parallel rank's shards in an arena, as arch::arena_layout lays them out.
arch::ArenaLayout layout_of(const ModelList& model, int tp_rank, int tp_size);
// Of all ranks, on one stage: as arch::replica_layouts.
std::vector<std::vector<arch::ArenaLayout>> rank_layouts(const ModelList& model, int tp_size);
std::vector<tensor::TensorInfo> tensors_of(const ModelList& model);
uint64_t bytes_of(const ModelList& model);

}  // namespace vime::bench
