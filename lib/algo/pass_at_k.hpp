// pass@k: the probability that at least one of k answers is right, estimated from n of which c are (Chen et al. 2021,
// "Evaluating Large Language Models Trained on Code", equation 1). Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace vime::algo {

// 1 - C(n - c, k) / C(n, k); 0 <= c <= n, 1 <= k <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);

// 1, 2, 4, ... up to n.
std::vector<int64_t> pass_at_k_sizes(int64_t n);

}  // namespace vime::algo
