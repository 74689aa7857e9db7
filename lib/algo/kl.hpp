// Estimators of the KL divergence from log-probs of the sampled token, with their derivative. Pure functions in double;
// any thread. With d = logprob - base: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d (Schulman, "Approximating KL
// Divergence", 2020); low_var_kl is k3 clamped to [-10, 10] (slime 624b824a).
#pragma once

#include <string>
#include <vector>

namespace vime::algo {

enum class KlType { k1, k2, k3, low_var_kl };

std::vector<std::string> kl_type_names();
// Error{refused} with the nearest name.
KlType parse_kl_type(const std::string& name);

struct ValueAndSlope {
  double value = 0.0;
  double slope = 0.0;  // d value / d logprob
};

ValueAndSlope kl_estimate(KlType type, double logprob, double base);

}  // namespace vime::algo
