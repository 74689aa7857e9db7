// Rotary position embeddings (Su et al. 2021) in the half-split form of transformers, with linear and Llama 3 frequency
// scaling. One thread at a time: the table of cosines and sines grows with the positions reserved.
#pragma once

#include <torch/types.h>

#include <vector>

#include "arch/model_config.hpp"

namespace vime::model {

class Rotary {
 public:
  // The table lies on `device`.
  Rotary(const arch::ModelConfig& config, torch::Device device);
  // Makes room for positions below `end`; later calls of angles() may use them.
  void reserve(int64_t end);

  // Cosines and sines of some rows, each [tokens, 1, head_dim / 2]. For kernels (fused_kernels.hpp), which look them up
  // themselves: the whole table, float32 [positions, head_dim / 2], and the rows' positions.
  struct Angles {
    torch::Tensor cos;
    torch::Tensor sin;
    torch::Tensor positions;  // undefined where cos and sin are of the rows
  };
  // positions: int64 [tokens] on the table's device, each reserved before. options: of what will be rotated.
  Angles angles(const torch::Tensor& positions, const torch::TensorOptions& options) const;

 private:
  std::vector<float> frequencies_;  // [head_dim / 2], radians per position
  int64_t max_positions_ = 0;
  torch::Device device_;
  torch::Tensor cos_;  // float32 [rows, head_dim / 2]
  torch::Tensor sin_;
};

// x: [tokens, heads, head_dim], rotated by its row's angles. Differentiable in x.
torch::Tensor rotate(const torch::Tensor& x, const Rotary::Angles& angles);

}  // namespace vime::model
