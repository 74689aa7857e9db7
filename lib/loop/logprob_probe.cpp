#include "loop/logprob_probe.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "rollout/train_batch.hpp"

namespace vime::loop {
namespace {

constexpr int kSequences = 8;
constexpr int64_t kMostTokens = 24;         // of a sequence
constexpr uint64_t kStream = 0x70726f6265;  // of random numbers
constexpr double kShareOfSpread = 0.25;
constexpr double kShareOfStep = 0.5;

double root_mean_square(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

double mean_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

double spread(const std::vector<double>& values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return root_mean_square(values, std::vector<double>(values.size(), mean));
}

// Log-probs come in float32: below some of its roundings nothing can be told.
double smallest_step(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return 8.0 * static_cast<double>(std::numeric_limits<float>::epsilon()) * largest;
}

std::string number(double value) {
  return format_number(value, 3);
}

// A batch whose response is all of a sequence but its first token.
rollout::TrainBatch batch_of(const std::vector<std::vector<int64_t>>& sequences, const std::string& run_id) {
  rollout::TrainBatch batch;
  batch.run_id = run_id;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const auto length = static_cast<int64_t>(sequences[i].size());
    batch.sample_indices.push_back(index);
    batch.group_ids.push_back(index);
    batch.prompt_ids.push_back(index);
    batch.lengths.push_back(length);
    batch.response_lengths.push_back(length - 1);
    batch.tokens.insert(batch.tokens.end(), sequences[i].begin(), sequences[i].end());
  }
  const std::size_t samples = sequences.size();
  batch.weight_versions_first.assign(samples, 0);
  batch.weight_versions_last.assign(samples, 0);
  batch.has_reward.assign(samples, 0);
  batch.rewards.assign(samples, 0.0);
  batch.advantages.assign(samples, 0.0);
  batch.loss_mask.assign(batch.tokens.size() - samples, 1);
  batch.rollout_logprobs.assign(batch.loss_mask.size(), 0.0);
  return batch;
}

}  // namespace

EngineProblem probe_problem(const ProbeValues& trainer, const ProbeValues& engine, double gap_tolerance) {
  const double off = root_mean_square(trainer.now, engine.now);
  const double among = spread(trainer.now);
  if (!(off <= kShareOfSpread * among)) {
    return {"its log-probs of a fixed text are off from the trainer's by " + number(off) +
            " (root mean square), which is more than a quarter of what they differ by among themselves, " +
            number(among) + ": it does not compute with the trainer's weights"};
  }
  if (!trainer.before.empty() && !engine.before.empty()) {
    const double step = root_mean_square(trainer.now, trainer.before);
    const double moved = root_mean_square(engine.now, engine.before);
    if (step > smallest_step(trainer.now) && moved < kShareOfStep * step) {
      return {"since the push before, its log-probs of a fixed text moved by " + number(moved) +
              ", while the trainer's moved by " + number(step) + ": it is still on weights from before"};
    }
  }
  const double mean = mean_difference(trainer.now, engine.now);
  if (mean <= gap_tolerance) return {};
  return {"its log-probs of a fixed text are off from the trainer's by " + number(mean) + " in the mean, allowed " +
              number(gap_tolerance),
          true};
}

LogprobProbe::LogprobProbe(fleet::Fleet& fleet, TrainerGroup& trainers, ProbeOptions options)
    : fleet_(fleet), trainers_(trainers), options_(std::move(options)) {}

LogprobProbe::~LogprobProbe() {
  std::error_code ignored;
  if (!sequences_.empty()) fs::remove(batch(), ignored);
}

fs::path LogprobProbe::batch() const {
  return options_.folder / "probe.safetensors";
}

int64_t LogprobProbe::tokens() const {
  return std::clamp<int64_t>(options_.max_model_len - 1, 2, kMostTokens);
}

void LogprobProbe::choose_sequences() {
  const int count = std::max(kSequences, options_.data_parallel_size);
  for (int i = 0; i < count; ++i) {
    std::vector<int64_t>& sequence = sequences_.emplace_back();
    for (int64_t t = 0; t < tokens(); ++t) {
      const uint64_t draw = mix_key(kStream, static_cast<uint64_t>(i), static_cast<uint64_t>(t));
      sequence.push_back(static_cast<int64_t>(draw % static_cast<uint64_t>(options_.vocab_size)));
    }
  }
  rollout::write_train_batch(batch(), batch_of(sequences_, options_.run_id));
}

void LogprobProbe::ask_trainer() {
  if (sequences_.empty()) choose_sequences();
  const std::vector<Json> replies = trainers_.call_all("/logprobs", {{"batch", batch().string()}});
  std::vector<double> values(sequences_.size() * static_cast<std::size_t>(tokens() - 1), std::nan(""));
  for (std::size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /logprobs";
    const Json& own = json_member(replies[rank], "logprobs", what);
    VIME_CHECK(own.size() == values.size(), what);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (own[i].is_number()) values[i] = own[i].get<double>();
    }
  }
  trainer_.before = std::exchange(trainer_.now, std::move(values));
}

std::vector<EngineProblem> LogprobProbe::ask_engines() {
  std::vector<EngineProblem> problems;
  for (int id = 0; id < fleet_.size(); ++id) {
    ProbeValues& engine = engines_[id];
    engine.before = std::exchange(engine.now, {});
    for (const std::vector<double>& sequence : fleet_.prompt_logprobs(id, sequences_)) {
      engine.now.insert(engine.now.end(), sequence.begin(), sequence.end());
    }
    EngineProblem problem = probe_problem(trainer_, engine, options_.gap_tolerance);
    if (problem.text.empty()) continue;
    problem.text = fleet_.engine(id).address().name() + ": " + problem.text;
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace vime::loop
