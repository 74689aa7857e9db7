// Advantages from rewards. Pure functions in double; any thread. Source of the formulas: GRPO (Shao et al. 2024,
// equation 1 and its outcome supervision) as slime 624b824a computes it, except that groups are told by their id and
// never by the batch's shape; GAE (Schulman et al. 2016, equation 16).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vime::algo {

struct GroupAdvantageOptions {
  bool std_normalization = true;  // divide by (unbiased standard deviation + epsilon)
  double epsilon = 1e-6;
};

struct GroupAdvantages {
  std::vector<double> advantages;  // [samples]
  int64_t groups = 0;
  int64_t zero_std_groups =
      0;  // groups whose rewards are all equal (one reward or none included): all their advantages are exactly 0
  int64_t without_reward = 0;  // samples that had no reward; they take no part in the mean and have advantage 0
};

// rewards [samples], group_ids [samples], in any order and with groups of any sizes.
// A group with a single reward is only centred (its standard deviation does not exist). VIME_CHECKs that rewards are
// finite.
GroupAdvantages group_advantages(std::span<const std::optional<double>> rewards, std::span<const int64_t> group_ids,
                                 const GroupAdvantageOptions& options = {});

struct Gae {
  std::vector<double> advantages;  // [batch, time]
  std::vector<double> returns;     // [batch, time]: advantages + values
};

// rewards and values are row-major [batch, time]; the value after the last step is 0. Padding is the caller's business.
Gae generalized_advantages(std::span<const double> rewards, std::span<const double> values, int64_t batch, int64_t time,
                           double gamma, double lambda);

}  // namespace vime::algo
