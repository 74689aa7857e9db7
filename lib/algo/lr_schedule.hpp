// The learning rate as a pure function of the optimizer step, so that a resumed run has nothing to restore. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime::algo {

enum class LrDecayStyle { constant, linear, cosine };

std::vector<std::string> lr_decay_style_names();
// Error{refused} with the nearest name.
LrDecayStyle parse_lr_decay_style(const std::string& name);

struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::constant;
  double lr = 1e-6;          // the largest
  double min_lr = 0.0;       // where the decay ends
  int64_t warmup_steps = 0;  // step t of these has lr * (t + 1) / warmup_steps, so that none is wasted at 0
  int64_t decay_steps =
      0;  // warm-up included; from this step on the rate is min_lr. 0 or less than the warm-up: no decay

  // Of optimizer step t = 0, 1, ... With p = (t - warmup) / (decay - warmup): linear lr + p * (min - lr), cosine
  // min + (lr - min) * (1 + cos(pi * p)) / 2 (Loshchilov and Hutter 2017, equation 5, without restarts).
  double at(int64_t step) const;
};

}  // namespace vime::algo
