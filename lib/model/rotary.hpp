// Rotary position embeddings (Su et al. 2021) in the half-split form of transformers, with linear and Llama 3 frequency
// scaling. One thread at a time: the table of cosines and sines grows with the largest position seen.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "arch/model_config.hpp"

namespace vime::model {

class Rotary {
 public:
  explicit Rotary(const arch::ModelConfig& config);

  // Cosines and sines of some rows, each [tokens, 1, head_dim / 2].
  struct Angles {
    torch::Tensor cos;
    torch::Tensor sin;
  };
  // positions: int64 [tokens] on the CPU. Throws Error{internal} on one outside [0, max_position_embeddings).
  Angles angles(const torch::Tensor& positions, const torch::TensorOptions& options);

 private:
  void grow(int64_t rows);

  std::vector<float> frequencies_;  // [head_dim / 2], radians per position
  int64_t max_positions_ = 0;
  torch::Tensor cos_;  // float32 [rows, head_dim / 2]
  torch::Tensor sin_;
};

// x: [tokens, heads, head_dim], rotated by its row's angles. Differentiable in x.
torch::Tensor rotate(const torch::Tensor& x, const Rotary::Angles& angles);

}  // namespace vime::model
