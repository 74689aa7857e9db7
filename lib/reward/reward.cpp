#include "reward/reward.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::reward {
namespace {

using Formula = double (*)(std::string_view response, std::string_view label);

struct Named {
  const char* name;
  Formula formula;
};
constexpr Named kFormulas[] = {{"position_match", position_match}, {"exact_match", exact_match}};

class FormulaReward final : public Reward {
 public:
  explicit FormulaReward(Formula formula) : formula_(formula) {}
  std::vector<std::optional<double>> score(std::span<const ScoreItem> items) const override {
    std::vector<std::optional<double>> scores;
    scores.reserve(items.size());
    for (const ScoreItem& item : items) scores.push_back(accepted(formula_(item.response, item.label)));
    return scores;
  }

 private:
  Formula formula_;
};

}  // namespace

double position_match(std::string_view response, std::string_view label) {
  if (label.empty()) return response.empty() ? 1.0 : 0.0;
  size_t right = 0;
  for (size_t i = 0; i < std::min(response.size(), label.size()); ++i) right += response[i] == label[i] ? 1 : 0;
  return 0.5 * static_cast<double>(right) / static_cast<double>(label.size()) + 0.5 * exact_match(response, label);
}

double exact_match(std::string_view response, std::string_view label) {
  return response == label ? 1.0 : 0.0;
}

std::optional<double> accepted(double value) {
  if (!std::isfinite(value) || std::abs(value) > kLargestReward) return std::nullopt;
  return value;
}

std::vector<std::string> reward_names() {
  std::vector<std::string> names;
  for (const Named& named : kFormulas) names.emplace_back(named.name);
  return names;
}

std::unique_ptr<Reward> make_reward(const std::string& type) {
  for (const Named& named : kFormulas) {
    if (type == named.name) return std::make_unique<FormulaReward>(named.formula);
  }
  const std::string near = nearest_name(type, reward_names());
  throw Error(ErrorKind::refused,
              "reward.type: expected one of " + join(reward_names(), ", ") + ", found \"" + type + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

}  // namespace vime::reward
