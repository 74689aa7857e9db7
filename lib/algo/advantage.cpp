#include "algo/advantage.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"

namespace vime::algo {
namespace {

// Writes the group's advantages and returns whether its rewards are all equal.
bool normalise_group(std::span<const std::optional<double>> rewards, const std::vector<size_t>& members,
                     const GroupAdvantageOptions& options, std::vector<double>& advantages) {
  // Equal rewards are caught first: their rounded mean need not be the reward itself, and the rest would be divided by
  // epsilon.
  const bool constant =
      std::all_of(members.begin(), members.end(), [&](size_t i) { return *rewards[i] == *rewards[members.front()]; });
  if (constant) return true;

  const auto count = static_cast<double>(members.size());
  double sum = 0.0;
  for (size_t i : members) sum += *rewards[i];
  const double mean = sum / count;
  double squares = 0.0;
  for (size_t i : members) squares += (*rewards[i] - mean) * (*rewards[i] - mean);
  const double scale = options.std_normalization ? std::sqrt(squares / (count - 1.0)) + options.epsilon : 1.0;
  for (size_t i : members) advantages[i] = (*rewards[i] - mean) / scale;
  return false;
}

}  // namespace

GroupAdvantages group_advantages(std::span<const std::optional<double>> rewards, std::span<const int64_t> group_ids,
                                 const GroupAdvantageOptions& options) {
  VIME_CHECK(rewards.size() == group_ids.size(), "every sample needs a group id");
  std::map<int64_t, std::vector<size_t>> groups;
  GroupAdvantages result;
  result.advantages.assign(rewards.size(), 0.0);
  for (size_t i = 0; i < rewards.size(); ++i) {
    std::vector<size_t>& members = groups[group_ids[i]];
    if (!rewards[i]) {
      ++result.without_reward;
      continue;
    }
    VIME_CHECK(std::isfinite(*rewards[i]), "reward of sample " + std::to_string(i) + " is not finite");
    members.push_back(i);
  }
  result.groups = static_cast<int64_t>(groups.size());
  for (const auto& [id, members] : groups) {
    if (normalise_group(rewards, members, options, result.advantages)) ++result.zero_std_groups;
  }
  return result;
}

Gae generalized_advantages(std::span<const double> rewards, std::span<const double> values, int64_t batch, int64_t time,
                           double gamma, double lambda) {
  VIME_CHECK(batch >= 0 && time >= 0, "negative shape");
  const auto count = static_cast<size_t>(batch * time);
  VIME_CHECK(rewards.size() == count && values.size() == count, "rewards and values must be [batch, time]");
  Gae result{std::vector<double>(count), std::vector<double>(count)};
  for (int64_t b = 0; b < batch; ++b) {
    double next_value = 0.0;
    double advantage = 0.0;
    for (int64_t t = time - 1; t >= 0; --t) {
      const auto i = static_cast<size_t>(b * time + t);
      advantage = rewards[i] + gamma * next_value - values[i] + gamma * lambda * advantage;
      next_value = values[i];
      result.advantages[i] = advantage;
      result.returns[i] = advantage + values[i];
    }
  }
  return result;
}

}  // namespace vime::algo
