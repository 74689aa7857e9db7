#include "sweep/tolerances.hpp"

#include <algorithm>

namespace vime::sweep {
namespace {

constexpr double kBetweenDraws = 3.0;
constexpr double kMostNoise = 0.15;  // of a gradient element, and of a log-prob

}  // namespace

Tolerances float32_tolerances(double largest_logprob) {
  return {.grad_norm = 1e-5,
          .gradient = 1e-4,
          .loss = 1e-5,
          .logprob = 1e-5 * std::max(1.0, largest_logprob / 10.0),
          .weight = 1e-4};
}

Tolerances bfloat16_tolerances(const Noise& noise, const Tolerances& exact) {
  const auto allowed = [](double error, double least) { return std::max(kBetweenDraws * error, least); };
  return {.grad_norm = allowed(noise.gradients, exact.grad_norm),
          .gradient = allowed(noise.gradient, exact.gradient),
          .loss = allowed(noise.logprob, exact.loss),
          .logprob = allowed(noise.logprob, exact.logprob),
          .weight = allowed(noise.weight, exact.weight)};
}

const char* too_noisy(const Noise& noise) {
  if (!(noise.gradient <= kMostNoise)) return "gradients";
  if (!(noise.logprob <= kMostNoise)) return "log-probs";
  return "";
}

}  // namespace vime::sweep
