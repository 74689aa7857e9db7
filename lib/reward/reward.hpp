// Scores responses. A score is a number or nothing: what is not finite, or larger than any sane reward, never becomes a
// number, so that one bad score cannot poison a group's mean. Built-in rewards are pure; any thread may call.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vime::reward {

// Half for the share of the label's positions at which the response has the same byte, half for an exact answer; in [0,
// 1]. Missing positions are wrong, extra bytes only cost the exact half. An empty label is matched only by an empty
// response.
double position_match(std::string_view response, std::string_view label);
// 1 when equal, else 0.
double exact_match(std::string_view response, std::string_view label);

struct ScoreItem {
  std::string_view prompt;
  std::string_view response;
  std::string_view label;
};

// Larger magnitudes are refused as rewards: their squares and sums must stay finite in every formula that follows.
inline constexpr double kLargestReward = 1e30;
// The value itself, or nothing where it is NaN, infinite or beyond kLargestReward.
std::optional<double> accepted(double value);

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
