#include "rollout/metrics.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "algo/advantage.hpp"
#include "base/error.hpp"

namespace vime::rollout {
namespace {

std::vector<const Sample*> by_index(std::span<const Sample> samples) {
  std::vector<const Sample*> sorted;
  for (const Sample& sample : samples) sorted.push_back(&sample);
  std::sort(sorted.begin(), sorted.end(), [](const Sample* a, const Sample* b) { return a->index < b->index; });
  return sorted;
}

void add_lengths(std::vector<int64_t> lengths, RolloutMetrics& metrics) {
  std::sort(lengths.begin(), lengths.end());
  int64_t sum = 0;
  for (int64_t length : lengths) sum += length;
  const size_t half = lengths.size() / 2;
  metrics.response_len_mean = static_cast<double>(sum) / static_cast<double>(lengths.size());
  metrics.response_len_median = lengths.size() % 2 == 1 ? static_cast<double>(lengths[half])
                                                        : 0.5 * static_cast<double>(lengths[half - 1] + lengths[half]);
  metrics.response_len_min = lengths.front();
  metrics.response_len_max = lengths.back();
}

}  // namespace

RolloutMetrics rollout_metrics(std::span<const Sample> samples) {
  if (samples.empty()) throw Error(ErrorKind::process_failed, "rollout: no samples came back");
  RolloutMetrics metrics;
  metrics.samples = static_cast<int64_t>(samples.size());
  std::vector<int64_t> lengths;
  std::vector<int64_t> group_ids;
  std::vector<std::optional<double>> rewards;
  double reward_sum = 0.0;
  int64_t rewarded = 0;
  int64_t truncated = 0;
  for (const Sample* sample : by_index(samples)) {
    lengths.push_back(sample->response_len);
    group_ids.push_back(sample->group_id);
    rewards.push_back(sample->is_trainable() ? sample->reward : std::nullopt);
    if (sample->reward) {
      reward_sum += *sample->reward;
      ++rewarded;
    }
    truncated += sample->finish_reason == "length" ? 1 : 0;  // whether it was scored or not
    metrics.aborted += sample->state == SampleState::aborted ? 1 : 0;
    metrics.failed += sample->state == SampleState::failed ? 1 : 0;
  }
  add_lengths(std::move(lengths), metrics);
  metrics.without_reward = metrics.samples - rewarded;
  metrics.raw_reward =
      rewarded > 0 ? reward_sum / static_cast<double>(rewarded) : std::numeric_limits<double>::quiet_NaN();
  metrics.truncated_ratio = static_cast<double>(truncated) / static_cast<double>(metrics.samples);
  const algo::GroupAdvantages groups = algo::group_advantages(rewards, group_ids);
  metrics.groups = groups.groups;
  metrics.zero_std_groups = groups.zero_std_groups;
  return metrics;
}

Json to_json(const RolloutMetrics& metrics) {
  return {{"rollout/raw_reward", metrics.raw_reward},
          {"rollout/response_len/mean", metrics.response_len_mean},
          {"rollout/response_len/median", metrics.response_len_median},
          {"rollout/response_len/min", metrics.response_len_min},
          {"rollout/response_len/max", metrics.response_len_max},
          {"rollout/truncated_ratio", metrics.truncated_ratio},
          {"rollout/samples", metrics.samples},
          {"rollout/groups", metrics.groups},
          {"rollout/zero_std_groups", metrics.zero_std_groups},
          {"rollout/without_reward", metrics.without_reward},
          {"rollout/aborted", metrics.aborted},
          {"rollout/failed", metrics.failed}};
}

}  // namespace vime::rollout
