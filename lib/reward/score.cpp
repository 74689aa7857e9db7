#include "reward/score.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::reward {
namespace {

constexpr const char* kNames[kMissingReasons] = {"none",      "absent",  "null",   "not_finite", "not_numeric",
                                                 "malformed", "timeout", "failed", "limit",      "bad_label"};

}  // namespace

const char* missing_name(Missing why) {
  return kNames[static_cast<size_t>(why)];
}

Score no_score(Missing why, std::string problem) {
  return {std::nullopt, why, std::move(problem)};
}

Score score_of(double value) {
  if (accepted(value)) return {value, Missing::none, ""};
  const std::string found = std::isnan(value) ? "NaN" : std::isinf(value) ? "infinite" : format_number(value);
  return no_score(Missing::not_finite, "the reward is " + found + ", expected a number of at most 1e30 in size");
}

std::optional<double> accepted(double value) {
  if (!std::isfinite(value) || std::abs(value) > kLargestReward) return std::nullopt;
  return value;
}

void Tally::add(const Score& score) {
  if (score.value) {
    ++scored;
    return;
  }
  ++missing[static_cast<size_t>(score.why)];
  if (example.empty()) example = score.problem;
}

int64_t Tally::without_number() const {
  int64_t sum = 0;
  for (const int64_t count : missing) sum += count;
  return sum;
}

std::string Tally::by_reason() const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kMissingReasons; ++i) {
    if (missing[i] > 0) parts.push_back(std::to_string(missing[i]) + " " + kNames[i]);
  }
  return join(parts, ", ");
}

void check_missing(const Tally& tally, int64_t samples, double max_missing_ratio) {
  const int64_t without = tally.without_number();
  if (static_cast<double>(without) <= max_missing_ratio * static_cast<double>(samples)) return;
  throw Error(ErrorKind::process_failed,
              std::to_string(without) + " of " + std::to_string(samples) + " samples got no reward (" +
                  tally.by_reason() + "), more than reward.max_missing_ratio " + format_number(max_missing_ratio) +
                  " allows; the first: " + tally.example,
              "repair the reward, or raise reward.max_missing_ratio: samples without a reward do not train");
}

}  // namespace vime::reward
