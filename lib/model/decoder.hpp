// One decoder definition for trainer and engine: Llama, Qwen2 and Qwen3 dense, tensor-parallel, over parameters that lie in an arena.
// The caller owns the arena and the attention; the decoder owns neither weights nor caches. One thread at a time.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "arch/parameters.hpp"

namespace vime::model {

// The collectives that tensor parallelism needs. Results have a fixed reduction order (rank 0 + rank 1 + ...), whatever the size.
class TensorParallel {
 public:
  virtual ~TensorParallel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // All ranks' tensors (same shape on each), in rank order. Collective.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) = 0;
};
std::shared_ptr<TensorParallel> single_rank();
// Over a c10d process group (gloo on CPU).
std::shared_ptr<TensorParallel> over_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group, int rank, int size);

// Called once per layer. q: [tokens, local heads, head_dim], k and v: [tokens, local kv heads, head_dim], rotated and normalised.
// Returns [tokens, local heads, head_dim].
using Attention = std::function<torch::Tensor(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v)>;

class Decoder {
 public:
  // `arena` holds arena_layout(config, dtype, tp->rank(), tp->size()).total_bytes and outlives the decoder.
  Decoder(arch::ModelConfig config, tensor::DType dtype, std::shared_ptr<TensorParallel> tp, std::byte* arena);

  // Hidden states after the final norm. ids and positions: int64 [tokens]; result: [tokens, hidden].
  torch::Tensor hidden_states(const torch::Tensor& ids, const torch::Tensor& positions, const Attention& attention) const;
  // Logits of every row over the whole vocabulary, in float32: [tokens, hidden] -> [tokens, vocab].
  torch::Tensor logits(const torch::Tensor& hidden) const;

  // Parameters as leaf tensors that alias the arena, under HF names, in checkpoint order. Local shards.
  struct Named {
    std::string name;
    torch::Tensor value;
  };
  std::vector<Named>& parameters();
  void require_grad(bool on);

  const arch::ModelConfig& config() const;
  const arch::ArenaLayout& layout() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Causal attention over sequences packed one behind the other; differentiable. lengths: tokens of each sequence, sum = rows of q.
Attention packed_attention(std::vector<int64_t> lengths);

// log softmax(logits / temperature)[target] and, when asked for, the entropy of softmax(logits / temperature); float32 [tokens].
struct TokenLogprobs {
  torch::Tensor logprobs;
  torch::Tensor entropy;  // undefined unless asked for
};
TokenLogprobs token_logprobs(const torch::Tensor& logits, const torch::Tensor& targets, double temperature, bool with_entropy);

// Random weights as a pure function of (seed, parameter name, index in the full tensor): the same model under every layout. Matrices
// are normal with initializer_range, norms one, biases zero.
void init_weights(Decoder& decoder, uint64_t seed);

// Fills the arena from <dir>'s safetensors (one file or an index of shards). Missing, surplus or misshapen tensors: Error{refused}.
void load_weights(Decoder& decoder, const fs::path& model_dir);

// Writes config.json and model.safetensors of whole tensors (tp size 1).
void save_weights(const Decoder& decoder, const fs::path& model_dir);

}  // namespace vime::model
