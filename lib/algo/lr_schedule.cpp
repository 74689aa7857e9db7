#include "algo/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::algo {

std::vector<std::string> lr_decay_style_names() {
  return {"constant", "linear", "cosine"};
}

LrDecayStyle parse_lr_decay_style(const std::string& name) {
  const std::vector<std::string> names = lr_decay_style_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<LrDecayStyle>(found - names.begin());
  const std::string nearest = nearest_name(name, names);
  throw Error(ErrorKind::refused, "unknown learning-rate schedule \"" + name + "\"; expected " + join(names, ", "),
              nearest.empty() ? "" : "did you mean \"" + nearest + "\"?");
}

double LrSchedule::at(int64_t step) const {
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (style == LrDecayStyle::constant || decay_steps <= warmup_steps) return lr;
  const double share = static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps - warmup_steps);
  if (share >= 1.0) return min_lr;
  if (style == LrDecayStyle::linear) return lr + share * (min_lr - lr);
  return min_lr + (lr - min_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
}

}  // namespace vime::algo
