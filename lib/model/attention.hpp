// Attention as the decoder calls it, and the trainer's: causal, over sequences packed one behind the other.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "model/collectives.hpp"

namespace vime::model {

// Called once per layer. q: [tokens, local heads, head_dim], k and v: [tokens, local kv heads, head_dim], rotated and
// normalised. Returns [tokens, local heads, head_dim].
using Attention =
    std::function<torch::Tensor(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v)>;

// Causal attention over sequences packed one behind the other; differentiable. lengths: tokens of each sequence, sum =
// rows of q. device and dtype: of q, k and v. 16-bit floats on a GPU go to kernels of their own, everything else is
// computed exactly, in blocks. same_bits: a row's bits depend on its own sequence only; otherwise the fastest kernel
// for the micro-batch is taken.
Attention packed_attention(std::vector<int64_t> lengths, torch::Device device = torch::kCPU,
                           torch::ScalarType dtype = torch::kFloat32, bool same_bits = false);

// Consecutive positions of one sequence that a context-parallel rank computes.
struct QuerySpan {
  int64_t row = 0;       // first of its rows of q
  int64_t count = 0;     // rows
  int64_t position = 0;  // of the first row in its sequence
  std::vector<int64_t>
      keys;  // [position + count]: where each position's key is among the gathered ones, rank after rank
};
// Causal attention with the keys and values of all ranks; rows: of q, k and v, the same number on every rank. Rows in
// no span get zeros. Differentiable; collective over `ranks` in both directions.
Attention context_parallel_attention(const std::vector<QuerySpan>& spans, int64_t rows, CollectivesPtr ranks,
                                     torch::Device device = torch::kCPU, torch::ScalarType dtype = torch::kFloat32);

}  // namespace vime::model
