#include "algo/pass_at_k.hpp"

#include <string>

#include "base/error.hpp"

namespace vime::algo {

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  VIME_CHECK(c >= 0 && c <= n && k >= 1 && k <= n,
             "pass@" + std::to_string(k) + " of " + std::to_string(c) + " in " + std::to_string(n));
  if (n - c < k) return 1.0;
  // C(n - c, k) / C(n, k) = product of (i - k) / i over i = n - c + 1 ... n, without large factorials.
  double none_right = 1.0;
  for (int64_t i = n - c + 1; i <= n; ++i) none_right *= static_cast<double>(i - k) / static_cast<double>(i);
  return 1.0 - none_right;
}

std::vector<int64_t> pass_at_k_sizes(int64_t n) {
  std::vector<int64_t> sizes;
  for (int64_t k = 1; k <= n; k *= 2) sizes.push_back(k);
  return sizes;
}

}  // namespace vime::algo
