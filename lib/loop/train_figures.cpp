#include "loop/train_figures.hpp"

#include <algorithm>
#include <cmath>

namespace vime::loop {
namespace {

// JSON has no NaN; null stands for one.
double number_of(const Json& value) {
  return value.is_null() ? std::nan("") : value.get<double>();
}

// The ranks' shares of one step, added in rank order.
Json add_ranks(const std::vector<Json>& replies, size_t step) {
  Json figures = Json::object();
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /train";
    const Json& share = json_member(replies[rank], "steps", what).at(step);
    for (const auto& [name, value] : json_member(share, "sums", what).items()) {
      figures[name] = figures.value(name, 0.0) + number_of(value);
    }
    if (rank > 0) continue;
    for (const auto& [name, value] : json_member(share, "same", what).items()) figures[name] = number_of(value);
  }
  return figures;
}

}  // namespace

TrainFigures train_figures(const std::vector<Json>& replies, int64_t rollout_id, const CheckLimits& limits,
                           const ChecksOn& on) {
  TrainFigures result;
  const size_t steps = json_member(replies.front(), "steps", "trainer rank 0: /train").size();
  for (size_t step = 0; step < steps; ++step) {
    const Json figures = add_ranks(replies, step);
    for (const auto& [name, value] : figures.items()) {
      result.metrics[name] = result.metrics.value(name, 0.0) + value.get<double>() / static_cast<double>(steps);
    }
    StepCheckInput input;
    input.step_of_rollout = static_cast<int>(step);
    input.ppo_kl = figures["train/ppo_kl"];
    input.ppo_kl_abs = figures["train/ppo_kl_abs"];
    input.kl_loss = figures["train/kl_loss"];
    input.train_rollout_logprob_abs_diff = figures["train/train_rollout_logprob_abs_diff"];
    input.grad_norm = figures["train/grad_norm"];
    input.loss = figures["train/loss"];
    for (const std::string& problem : step_problems(input, limits, on)) {
      result.problems.push_back("rollout " + std::to_string(rollout_id) + ", optimizer step " + std::to_string(step) +
                                ": " + problem);
    }
    if (figures["train/step_applied"] != 1.0) ++result.nonfinite_steps;
    ++result.optimizer_steps;
  }
  result.metrics.erase("train/step_applied");
  result.metrics["train/nonfinite_steps"] = result.nonfinite_steps;
  result.metrics["train/check_problems"] = result.problems.size();
  return result;
}

uint64_t peak_memory(const std::vector<Json>& replies) {
  int64_t most = 0;
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /train: memory";
    const Json& memory = json_member(replies[rank], "memory", what);
    most = std::max(most, json_int(memory, "arena_bytes", what) + json_int(memory, "peak_bytes", what));
  }
  return static_cast<uint64_t>(most);
}

}  // namespace vime::loop
