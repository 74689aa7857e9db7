#include "rollout/schedule.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace vime::rollout {
namespace {

struct Bin {
  MicroBatch samples;
  int64_t tokens = 0;
};

using Lengths = std::span<const int64_t>;

void put(Bin& bin, int64_t sample, Lengths lengths) {
  bin.samples.push_back(sample);
  bin.tokens += lengths[static_cast<size_t>(sample)];
}

// Each sample, longest first, goes to the bin with the fewest tokens: balanced, but the token budget may be missed.
std::vector<Bin> emptiest_first(const std::vector<int64_t>& longest_first, Lengths lengths, size_t bins) {
  std::vector<Bin> result(bins);
  for (int64_t sample : longest_first) {
    auto emptiest =
        std::min_element(result.begin(), result.end(), [](const Bin& a, const Bin& b) { return a.tokens < b.tokens; });
    put(*emptiest, sample, lengths);
  }
  return result;
}

// Each sample, longest first, goes to the first bin with room: few bins, the budget always kept.
std::vector<Bin> first_fit(const std::vector<int64_t>& longest_first, Lengths lengths, int64_t max_tokens) {
  std::vector<Bin> result;
  for (int64_t sample : longest_first) {
    const int64_t length = lengths[static_cast<size_t>(sample)];
    auto fits =
        std::find_if(result.begin(), result.end(), [&](const Bin& bin) { return bin.tokens + length <= max_tokens; });
    if (fits == result.end()) fits = result.insert(result.end(), Bin{});
    put(*fits, sample, lengths);
  }
  return result;
}

bool keeps_budget(const std::vector<Bin>& bins, int64_t max_tokens) {
  return std::all_of(bins.begin(), bins.end(),
                     [&](const Bin& bin) { return bin.tokens <= max_tokens || bin.samples.size() == 1; });
}

// Halves the largest bin that has more than one sample until there are `count`; the rest stay empty where all are
// single.
void split_up_to(std::vector<Bin>& bins, size_t count, Lengths lengths) {
  while (bins.size() < count) {
    auto largest = bins.end();
    for (auto bin = bins.begin(); bin != bins.end(); ++bin) {
      if (bin->samples.size() > 1 && (largest == bins.end() || bin->tokens > largest->tokens)) largest = bin;
    }
    if (largest == bins.end()) {
      bins.resize(count);
      return;
    }
    std::vector<Bin> halves = emptiest_first(largest->samples, lengths, 2);
    *largest = std::move(halves[0]);
    bins.push_back(std::move(halves[1]));
  }
}

std::vector<Bin> fill_bins(const std::vector<int64_t>& longest_first, Lengths lengths, const ScheduleOptions& options) {
  const auto dp = static_cast<size_t>(options.dp_size);
  std::vector<Bin> tight = first_fit(longest_first, lengths, options.max_tokens);
  const size_t count = (tight.size() + dp - 1) / dp * dp;
  std::vector<Bin> balanced = emptiest_first(longest_first, lengths, count);
  if (keeps_budget(balanced, options.max_tokens)) return balanced;
  split_up_to(tight, count, lengths);
  return tight;
}

// Hands the bins to the ranks, equally many each, largest first to the rank with the fewest tokens that still needs
// one.
std::vector<std::vector<MicroBatch>> deal(std::vector<Bin> bins, size_t dp) {
  std::stable_sort(bins.begin(), bins.end(), [](const Bin& a, const Bin& b) { return a.tokens > b.tokens; });
  const size_t per_rank = bins.size() / dp;
  std::vector<std::vector<MicroBatch>> ranks(dp);
  std::vector<int64_t> tokens(dp, 0);
  for (Bin& bin : bins) {
    size_t best = dp;
    for (size_t rank = 0; rank < dp; ++rank) {
      if (ranks[rank].size() < per_rank && (best == dp || tokens[rank] < tokens[best])) best = rank;
    }
    tokens[best] += bin.tokens;
    std::sort(bin.samples.begin(), bin.samples.end());
    ranks[best].push_back(std::move(bin.samples));
  }
  return ranks;
}

}  // namespace

std::vector<StepSchedule> schedule_micro_batches(std::span<const int64_t> lengths, const ScheduleOptions& options) {
  VIME_CHECK(options.dp_size >= 1 && options.max_tokens >= 1 && options.steps >= 1,
             "schedule options must be positive");
  const auto count = static_cast<int64_t>(lengths.size());
  if (count == 0 || count % options.steps != 0) {
    throw Error(
        ErrorKind::refused,
        std::to_string(count) + " samples do not divide into " + std::to_string(options.steps) + " optimizer steps",
        "make rollout_batch_size x n_samples_per_prompt a multiple of global_batch_size");
  }
  for (int64_t length : lengths) VIME_CHECK(length >= 1, "a sample without tokens");
  const int64_t per_step = count / options.steps;
  std::vector<StepSchedule> steps;
  for (int64_t first = 0; first < count; first += per_step) {
    std::vector<int64_t> longest_first(static_cast<size_t>(per_step));
    std::iota(longest_first.begin(), longest_first.end(), first);
    std::stable_sort(longest_first.begin(), longest_first.end(), [&](int64_t a, int64_t b) {
      return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
    });
    StepSchedule step;
    step.samples = per_step;
    step.ranks = deal(fill_bins(longest_first, lengths, options), static_cast<size_t>(options.dp_size));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace vime::rollout
