// AdamW with gradient clipping over gradients that lie in one flat buffer, so that a step needs one all-reduce. One
// thread.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "model/decoder.hpp"

namespace vime::trainer {

struct OptimizerOptions {
  double lr = 1e-6;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;  // of matrices; norms and biases have none
  double clip_grad = 1.0;     // largest gradient norm; 0: no clipping
};

class Optimizer {
 public:
  // Takes over the gradients of the decoder's parameters: they become views of one buffer.
  Optimizer(model::Decoder& decoder, const OptimizerOptions& options);

  torch::Tensor& flat_gradient() { return flat_gradient_; }  // [elements of all parameters], float32
  void zero_gradient() { flat_gradient_.zero_(); }

  struct Result {
    double grad_norm = 0.0;  // before clipping
    bool applied = false;    // false: the norm was not finite and the weights were left as they were
  };
  Result step();
  double lr() const { return options_.lr; }

 private:
  OptimizerOptions options_;
  torch::Tensor flat_gradient_;
  std::unique_ptr<torch::optim::AdamW> adamw_;
};

}  // namespace vime::trainer
