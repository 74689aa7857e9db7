// One decoder definition for trainer and engine: Llama, Qwen2 and Qwen3 dense, tensor-parallel, over parameters that
// lie in an arena. The caller owns the arena and the attention; the decoder owns neither weights nor caches. One thread
// at a time. With more than one rank the forward and backward pass are collective: all ranks run the same tokens and
// block for each other (RankGroup's timeout).
//
// Gradients are complete after backward on every rank, with nothing left to sum over tensor-parallel ranks: where a
// rank sees only part of the work of a parameter that several ranks hold (q_norm, k_norm, shared key/value heads) the
// sum is part of the backward pass. Copies stay equal bit by bit. A norm over all parameters counts the shards with
// `owner` set only.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "arch/parameters.hpp"
#include "model/rank_group.hpp"

namespace vime::model {

// The collectives that tensor parallelism needs. Results have a fixed reduction order (rank 0 + rank 1 + ...), whatever
// the size.
class TensorParallel {
 public:
  virtual ~TensorParallel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // All ranks' tensors (same shape on each), in rank order. Collective.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) = 0;
};
std::shared_ptr<TensorParallel> single_rank();
// On the CPU: the ranks of a group.
std::shared_ptr<TensorParallel> over_group(std::shared_ptr<RankGroup> group);

// LibTorch's name of a dtype.
torch::ScalarType scalar_type(tensor::DType dtype);

// Called once per layer. q: [tokens, local heads, head_dim], k and v: [tokens, local kv heads, head_dim], rotated and
// normalised. Returns [tokens, local heads, head_dim].
using Attention =
    std::function<torch::Tensor(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v)>;

class Decoder {
 public:
  // `arena` holds arena_layout(config, dtype, tp->rank(), tp->size()).total_bytes and outlives the decoder.
  Decoder(arch::ModelConfig config, tensor::DType dtype, std::shared_ptr<TensorParallel> tp, std::byte* arena);

  // Hidden states after the final norm. ids and positions: int64 [tokens] on the CPU; result: [tokens, hidden]. Ids
  // outside the vocabulary and positions outside max_position_embeddings are Error{internal}: the callers have checked
  // what users gave them.
  torch::Tensor hidden_states(const torch::Tensor& ids, const torch::Tensor& positions,
                              const Attention& attention) const;
  // Logits of every row over the whole vocabulary, in float32: [tokens, hidden] -> [tokens, vocab].
  torch::Tensor logits(const torch::Tensor& hidden) const;

  // Parameters as leaf tensors that alias the arena, under HF names, in checkpoint order. Local shards.
  struct Named {
    std::string name;
    torch::Tensor value;
  };
  std::vector<Named>& parameters();
  const std::vector<Named>& parameters() const;
  void require_grad(bool on);

  const arch::ModelConfig& config() const;
  const arch::ArenaLayout& layout() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Causal attention over sequences packed one behind the other; differentiable. lengths: tokens of each sequence, sum =
// rows of q.
Attention packed_attention(std::vector<int64_t> lengths);

// log softmax(logits / temperature)[target] and, when asked for, the entropy of softmax(logits / temperature); float32
// [tokens].
struct TokenLogprobs {
  torch::Tensor logprobs;
  torch::Tensor entropy;  // undefined unless asked for
};
TokenLogprobs token_logprobs(const torch::Tensor& logits, const torch::Tensor& targets, double temperature,
                             bool with_entropy);

// Random weights as a pure function of (seed, parameter name, index in the full tensor): the same model under every
// layout. Matrices are normal with initializer_range, norms one, biases zero.
void init_weights(Decoder& decoder, uint64_t seed);

// Fills the arena from <dir>'s safetensors (one file or an index of shards), converting the dtype. Missing, surplus or
// misshapen tensors: Error{refused}. Every rank reads its own shards; not collective.
void load_weights(Decoder& decoder, const fs::path& model_dir);

// Writes config.json and whole tensors (tp size 1): model.safetensors, or shards of at most `shard_bytes` (a larger
// tensor is a shard of its own) with an index where they do not fit into one.
void save_weights(const Decoder& decoder, const fs::path& model_dir, uint64_t shard_bytes = uint64_t{5} << 30);

}  // namespace vime::model
