#include "sweep/tolerances.hpp"

#include <algorithm>

namespace vime::sweep {

Tolerances tolerances_for(const std::string& dtype) {
  // A rounding is 2^-9 = 2e-3 there against 6e-8. Weights are kept in float32 and sums are made in float32, so errors
  // do not grow with the length of a sum: a layer adds a few independent roundings of its activations, which makes
  // about 1 % of a gradient element and a few hundredths of a log-prob. A layout that is wrong is off by its own size.
  if (dtype == "bfloat16") {
    return {.grad_norm = 1e-2, .gradient = 5e-2, .loss = 2e-2, .logprob = 5e-2, .weight = 5e-2};
  }
  // The step turns a difference of gradients into one of weights. After clipping no element is above 1, so SGD makes
  // 1e-4 of a gradient at most 1e-4 learning rates; Adam with eps 1e-2 makes noise of 1e-7, which is what there is,
  // 1e-5 learning rates.
  return {.grad_norm = 1e-5, .gradient = 1e-4, .loss = 1e-5, .logprob = 1e-5, .weight = 1e-4};
}

double logprob_tolerance(const Tolerances& tolerances, double largest) {
  return tolerances.logprob * std::max(1.0, largest / 10.0);
}

}  // namespace vime::sweep
