// One decoder definition for trainer and engine: Llama, Qwen2 and Qwen3 dense, the layers of one pipeline stage,
// tensor-parallel, over parameters that lie in an arena in the host's memory or a GPU's. The caller owns the arena and
// the attention; the decoder owns neither weights nor caches. One thread at a time. With more than one rank the forward
// and backward pass are collective: all ranks run the same tokens and block for each other (RankGroup's timeout).
//
// Gradients of what several tensor-parallel ranks hold (norms, biases behind a sum, shared key/value heads): without
// sequence parallelism they are complete after backward, the sum being part of the backward pass; with it each rank's
// are of its own rows or heads, and the sum over the holders, once a step, is the caller's. Copies stay equal bit by
// bit. A norm over all parameters counts owners only.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "arch/parameters.hpp"
#include "arch/recompute.hpp"
#include "model/attention.hpp"
#include "model/collectives.hpp"

namespace vime::model {

// LibTorch's name of a dtype.
torch::ScalarType scalar_type(tensor::DType dtype);

// Decoder::set_rows_per_product for trainers and engines that have to agree bit by bit.
inline constexpr int64_t kRowsPerProduct = 256;

class Decoder {
 public:
  // The whole model. `arena` holds arena_layout(config, dtype, tp->rank(), tp->size()).total_bytes, lies on `device`
  // and outlives the decoder.
  Decoder(arch::ModelConfig config, tensor::DType dtype, CollectivesPtr tp, std::byte* arena,
          torch::Device device = torch::kCPU);
  // One stage; the arena is that of arena_layout(..., stage). sequence_parallel: between attention and MLP each
  // tensor-parallel rank holds an equal share of the rows (Korthikanti et al. 2022), so that the number of rows has to
  // be a multiple of the tensor-parallel size.
  Decoder(arch::ModelConfig config, tensor::DType dtype, CollectivesPtr tp, std::byte* arena, const arch::Stage& stage,
          bool sequence_parallel, torch::Device device = torch::kCPU);

  // Looks at the tokens of a pass before it, on the CPU, where looking costs no wait for the device: ids outside the
  // vocabulary and positions outside max_position_embeddings are Error{internal}, since the callers have checked what
  // users gave them. Both int64 [tokens] on the CPU.
  void check_tokens(const torch::Tensor& ids, const torch::Tensor& positions) const;

  // The parts of a forward pass over tokens that have been checked; all tensors lie on the decoder's device. `rows` are
  // all rows, or this rank's share of them under sequence parallelism.
  // First stage: int64 [tokens] -> [rows, hidden].
  torch::Tensor embed(const torch::Tensor& ids) const;
  // What runs from block to block, x + delta, [rows, hidden] each: the norm that comes next does the addition. delta
  // may be undefined.
  struct Residual {
    torch::Tensor x;
    torch::Tensor delta;
    torch::Tensor whole() const;  // the sum, where no norm comes next
  };
  // x: [rows, hidden]; positions: int64 [tokens], of all rows.
  Residual run_layers(const torch::Tensor& x, const torch::Tensor& positions, const Attention& attention) const;
  // Last stage: the final norm, [rows, hidden] -> [rows, hidden].
  torch::Tensor final_norm(const Residual& rows) const;
  // All three, where there is one stage: hidden states after the final norm. ids and positions: on the CPU; they are
  // checked first.
  torch::Tensor hidden_states(const torch::Tensor& ids, const torch::Tensor& positions,
                              const Attention& attention) const;

  // Logits of every row over the whole vocabulary, in float32: [tokens, hidden] -> [tokens, vocab]. Not under sequence
  // parallelism.
  torch::Tensor logits(const torch::Tensor& hidden) const;
  // Logits of some rows (indices into all tokens) over this rank's part of the vocabulary, in float32: [rows, hidden]
  // -> [selected, part]. The part begins at vocab_begin().
  torch::Tensor local_logits(const torch::Tensor& hidden, const torch::Tensor& selected) const;
  // The two halves of it, for what never wants all logits at once: the selected rows (sequence parallelism undone;
  // their gradient is shared with the other ranks), and this rank's part of the head, [part, hidden].
  torch::Tensor head_rows(const torch::Tensor& hidden, const torch::Tensor& selected) const;
  const torch::Tensor& head() const;
  int64_t vocab_begin() const;  // on the first and the last stage
  const CollectivesPtr& tensor_parallel() const;
  std::byte* arena() const;
  torch::Device device() const;
  torch::ScalarType dtype() const;

  // Products with weights take so many rows each (model/linear.hpp), the same number wherever two passes have to agree
  // bit by bit; 0, the default: all rows at once.
  void set_rows_per_product(int64_t rows);
  int64_t rows_per_product() const;
  void set_recompute(arch::Recompute recompute);  // none by default

  // Parameters as leaf tensors that alias the arena, under HF names, in checkpoint order. Local shards.
  struct Named {
    std::string name;
    torch::Tensor value;
  };
  std::vector<Named>& parameters();
  const std::vector<Named>& parameters() const;
  void require_grad(bool on);
  // From now on gradients of all parameters are summed in `flat`, float32 on the decoder's device, one element for each
  // of the arena's, in the same places. An undefined one takes them away.
  void set_gradients(const torch::Tensor& flat);

  const arch::ModelConfig& config() const;
  const arch::ArenaLayout& layout() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Random weights as a pure function of (seed, parameter name, index in the full tensor): the same model under every
// layout. Matrices are normal with initializer_range, norms one, biases zero.
void init_weights(Decoder& decoder, uint64_t seed);

}  // namespace vime::model
