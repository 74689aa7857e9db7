// The built-in rewards scored at once, on the calling thread: for callers that need no command and no service. Rewards
// of every kind go through rewards.hpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reward/score.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {

class Reward {
 public:
  virtual ~Reward() = default;
  // One entry per item, in order; nothing where the item could not be scored.
  virtual std::vector<std::optional<double>> score(std::span<const ScoreItem> items) const = 0;
};

std::vector<std::string> reward_names();
// By `type` of the spec. Error{refused} with the nearest name and the list.
std::unique_ptr<Reward> make_reward(const std::string& type);

}  // namespace vime::reward
