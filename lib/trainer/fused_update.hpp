// The optimizer's passes over flat buffers on a GPU, each one kernel.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace vime::trainer {

// The sum of squares of float32 parts of a buffer, in float64 and in a fixed order.
double fused_sum_of_squares(const std::vector<torch::Tensor>& parts);

struct FusedAdamW {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t of the moments
  double gradient_scale = 1;
  std::vector<std::pair<int64_t, bool>> decays;  // end of a range of elements, whether it decays; in order, all of them
};
// float32 all but `weights`, which get the master's values; undefined where the master is the weights. [elements] each.
void fused_adamw(const FusedAdamW& step, torch::Tensor& master, torch::Tensor& exp_avg, torch::Tensor& exp_avg_sq,
                 const torch::Tensor& gradient, torch::Tensor weights);

}  // namespace vime::trainer
