#include "rollout/schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"

using namespace vime;
using namespace vime::rollout;

namespace {

std::vector<int64_t> random_lengths(int64_t count, int64_t longest, uint64_t seed) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const double u = uniform01(mix_key(seed, static_cast<uint64_t>(i)));
    lengths.push_back(1 + static_cast<int64_t>(u * u * static_cast<double>(longest - 1)));
  }
  return lengths;
}

int64_t tokens_of(const MicroBatch& batch, const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (int64_t sample : batch) sum += lengths[static_cast<size_t>(sample)];
  return sum;
}

int64_t tokens_of(const std::vector<MicroBatch>& rank, const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const MicroBatch& batch : rank) sum += tokens_of(batch, lengths);
  return sum;
}

// What has to hold of every schedule.
void check_schedule(const std::vector<StepSchedule>& steps, const std::vector<int64_t>& lengths,
                    const ScheduleOptions& options) {
  REQUIRE(static_cast<int64_t>(steps.size()) == options.steps);
  const int64_t per_step = static_cast<int64_t>(lengths.size()) / options.steps;
  for (size_t s = 0; s < steps.size(); ++s) {
    std::multiset<int64_t> seen;
    size_t empty = 0;
    REQUIRE(static_cast<int64_t>(steps[s].ranks.size()) == options.dp_size);
    for (const auto& rank : steps[s].ranks) {
      REQUIRE(static_cast<int64_t>(rank.size()) == steps[s].micro_batches());
      for (const MicroBatch& batch : rank) {
        empty += batch.empty() ? 1 : 0;
        REQUIRE(std::is_sorted(batch.begin(), batch.end()));
        if (batch.size() > 1) REQUIRE(tokens_of(batch, lengths) <= options.max_tokens);
        seen.insert(batch.begin(), batch.end());
      }
    }
    std::multiset<int64_t> expected;
    for (int64_t i = 0; i < per_step; ++i) expected.insert(static_cast<int64_t>(s) * per_step + i);
    REQUIRE(seen == expected);
    REQUIRE(steps[s].samples == per_step);
    // Empty micro-batches only fill up the last round of ranks, never a round of its own.
    REQUIRE(static_cast<int64_t>(empty) < options.dp_size);
  }
}

}  // namespace

TEST_CASE("random schedules use every sample once, keep the budget and give all ranks equally many micro-batches") {
  for (uint64_t trial = 0; trial < 600; ++trial) {
    const auto pick = [&](uint64_t key, int64_t low, int64_t high) {
      return low + static_cast<int64_t>(uniform01(mix_key(trial, key)) * static_cast<double>(high - low + 1));
    };
    ScheduleOptions options{pick(1, 1, 8), pick(2, 20, 400), pick(3, 1, 4)};
    const int64_t count = options.steps * pick(4, 1, 60);
    const std::vector<int64_t> lengths = random_lengths(count, pick(5, 2, 300), trial);
    CAPTURE(trial);
    check_schedule(schedule_micro_batches(lengths, options), lengths, options);
  }
}

TEST_CASE("micro-batches are empty only where samples run out") {
  // Five samples for three ranks that each hold two of them at most: one of six places stays empty.
  const std::vector<int64_t> lengths(5, 10);
  const auto steps = schedule_micro_batches(lengths, {3, 10, 1});
  CHECK(steps[0].micro_batches() == 2);
  check_schedule(steps, lengths, {3, 10, 1});
  // One sample for four ranks.
  const auto lonely = schedule_micro_batches(std::vector<int64_t>{7}, {4, 100, 1});
  CHECK(lonely[0].micro_batches() == 1);
  CHECK(lonely[0].ranks[0][0] == MicroBatch{0});
  CHECK(lonely[0].ranks[3][0].empty());
}

TEST_CASE("a sample beyond the budget has a micro-batch of its own") {
  const std::vector<int64_t> lengths = {500, 10, 10, 10};
  const auto steps = schedule_micro_batches(lengths, {1, 100, 1});
  REQUIRE(steps[0].micro_batches() == 2);
  CHECK(steps[0].ranks[0][0] == MicroBatch{0});
  CHECK(steps[0].ranks[0][1] == MicroBatch{1, 2, 3});
}

TEST_CASE("with room for all every rank has one micro-batch and the loads are near") {
  const std::vector<int64_t> lengths = random_lengths(256, 64, 5);
  for (int64_t dp : {1, 2, 3, 5, 8}) {
    const auto steps = schedule_micro_batches(lengths, {dp, 1 << 20, 1});
    CHECK(steps[0].micro_batches() == 1);
    int64_t least = 1 << 30;
    int64_t most = 0;
    for (const auto& rank : steps[0].ranks) {
      least = std::min(least, tokens_of(rank, lengths));
      most = std::max(most, tokens_of(rank, lengths));
    }
    // Longest-first greedy: the last sample put on the fullest rank is a short one.
    CHECK(most - least <= 64);
  }
}

TEST_CASE("with a tight budget ranks stay balanced within one micro-batch") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<int64_t> lengths = random_lengths(200, 100, seed);
    const auto steps = schedule_micro_batches(lengths, {4, 200, 1});
    int64_t least = 1 << 30;
    int64_t most = 0;
    for (const auto& rank : steps[0].ranks) {
      least = std::min(least, tokens_of(rank, lengths));
      most = std::max(most, tokens_of(rank, lengths));
    }
    CHECK(most - least <= 200);
  }
}

TEST_CASE("the number of micro-batches is close to the least possible") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<int64_t> lengths = random_lengths(200, 100, seed);
    int64_t total = 0;
    for (int64_t length : lengths) total += length;
    const auto steps = schedule_micro_batches(lengths, {2, 200, 1});
    const int64_t bound = (total + 199) / 200;
    // First-fit decreasing needs at most 11/9 of the optimum + 1; rounding up to the ranks adds less than one each.
    CHECK(steps[0].micro_batches() * 2 <= bound * 11 / 9 + 3);
  }
}

TEST_CASE("the same lengths always give the same schedule") {
  const std::vector<int64_t> lengths = random_lengths(64, 50, 9);
  const auto a = schedule_micro_batches(lengths, {4, 120, 2});
  const auto b = schedule_micro_batches(lengths, {4, 120, 2});
  for (size_t s = 0; s < a.size(); ++s) CHECK(a[s].ranks == b[s].ranks);
}

TEST_CASE("steps are consecutive, equally large parts of the batch") {
  const std::vector<int64_t> lengths(12, 5);
  const auto steps = schedule_micro_batches(lengths, {2, 1000, 3});
  CHECK(steps[1].samples == 4);
  check_schedule(steps, lengths, {2, 1000, 3});
}

TEST_CASE("samples that do not divide into the steps are refused") {
  CHECK_THROWS_AS(schedule_micro_batches(std::vector<int64_t>(10, 5), {2, 100, 3}), Error);
  CHECK_THROWS_AS(schedule_micro_batches({}, {2, 100, 1}), Error);
  CHECK_THROWS_AS(schedule_micro_batches(std::vector<int64_t>{0}, {2, 100, 1}), Error);
}
