#include "reward/reward.hpp"

#include "reward/builtin.hpp"

namespace vime::reward {
namespace {

class BuiltinReward final : public Reward {
 public:
  explicit BuiltinReward(std::string type) : type_(std::move(type)), builtins_("") {}
  std::vector<std::optional<double>> score(std::span<const ScoreItem> items) const override {
    std::vector<std::optional<double>> scores;
    scores.reserve(items.size());
    for (const ScoreItem& item : items) scores.push_back(builtins_.score(type_, item).value);
    return scores;
  }

 private:
  std::string type_;
  Builtins builtins_;
};

}  // namespace

std::vector<std::string> reward_names() {
  return builtin_names();
}

std::unique_ptr<Reward> make_reward(const std::string& type) {
  if (!is_builtin(type)) refuse_type("reward.type", type, true);
  return std::make_unique<BuiltinReward>(type);
}

}  // namespace vime::reward
