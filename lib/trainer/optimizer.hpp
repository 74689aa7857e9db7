// AdamW with gradient clipping over flat buffers that lie exactly as the decoder's arena does (padding included, which
// stays zero), so that a step needs one all-reduce and one pass. One thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "algo/lr_schedule.hpp"
#include "base/files.hpp"
#include "model/decoder.hpp"

namespace vime::trainer {

struct OptimizerOptions {
  algo::LrSchedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;  // of matrices; norms and biases have none
  double clip_grad = 1.0;     // largest gradient norm; 0: no clipping
};

class Optimizer {
 public:
  // Takes over the gradients of the decoder's parameters: they become views of one buffer. The decoder (float32) must
  // outlive this.
  Optimizer(model::Decoder& decoder, const OptimizerOptions& options);

  torch::Tensor& flat_gradient() { return gradient_; }  // float32 [arena bytes / 4]
  void zero_gradient() { gradient_.zero_(); }

  struct Result {
    double grad_norm = 0.0;  // before clipping
    double lr = 0.0;         // that the schedule gave this step
    bool applied = false;    // false: the norm was not finite and the weights were left as they were
  };
  // Loshchilov and Hutter 2019, algorithm 2, with the decay scaled by the learning rate as PyTorch does.
  Result step();
  int64_t steps() const { return steps_; }  // taken, those not applied included: the schedule's clock

  // The moments as exp_avg.<HF name> and exp_avg_sq.<HF name>; they alias this.
  std::vector<tensor::TensorView> moments() const;
  // The state as one safetensors file: the moments, and the counters as metadata.
  void save(const fs::path& path) const;
  // Error{refused} naming file and tensor where it is not this model's.
  void load(const fs::path& path);

 private:
  void update(double lr);

  model::Decoder& decoder_;
  OptimizerOptions options_;
  torch::Tensor weights_, gradient_, exp_avg_, exp_avg_sq_;  // float32 [arena bytes / 4]
  int64_t steps_ = 0;
  int64_t applied_ = 0;  // the clock of the moments' bias corrections
};

}  // namespace vime::trainer
