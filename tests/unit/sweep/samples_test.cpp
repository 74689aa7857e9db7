#include "sweep/samples.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace vime;
using namespace vime::sweep;

namespace {

std::vector<rollout::TrainBatch> samples(uint64_t seed) {
  SampleOptions options;
  options.seed = seed;
  options.vocab_size = 61;
  return make_samples(options, "run");
}

// Masked-in tokens of each sample.
std::vector<int64_t> counted_tokens(const rollout::TrainBatch& batch) {
  std::vector<int64_t> counts;
  const std::vector<int64_t> starts = rollout::offsets(batch.response_lengths);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    counts.push_back(
        std::accumulate(batch.loss_mask.begin() + starts[i], batch.loss_mask.begin() + starts[i + 1], int64_t{0}));
  }
  return counts;
}

}  // namespace

TEST_CASE("samples are the same for the same seed, and others for another or in another step") {
  CHECK(samples(7) == samples(7));
  CHECK(samples(7)[0].tokens != samples(8)[0].tokens);
  CHECK(samples(7)[0].tokens != samples(7)[1].tokens);
}

TEST_CASE("there are two steps of 16 samples in groups of 4, enough for two samples on each of 8 data-parallel ranks") {
  CHECK(sample_count({{8, 1, 1, 1, 8, Loss::sample_mean}}) == 16);
  CHECK(sample_count({{2, 2, 1, 1, 1, Loss::sample_mean}}) == 16);
  CHECK(sample_count({{6, 1, 1, 1, 6, Loss::sample_mean}, {4, 1, 1, 1, 4, Loss::sample_mean}}) == 24);
  const std::vector<rollout::TrainBatch> batches = samples(7);
  CHECK(batches.size() == 2);
  for (const rollout::TrainBatch& batch : batches) {
    CHECK(batch.samples() == 16);
    for (int64_t group = 0; group < 4; ++group) {
      CHECK(std::count(batch.group_ids.begin(), batch.group_ids.end(), group) == 4);
    }
  }
}

TEST_CASE("lengths go from shorter than the chunks of context parallelism to several times longer than the mean") {
  for (const uint64_t seed : {1, 7, 1234}) {
    for (const rollout::TrainBatch& batch : samples(seed)) {
      // CP 8 cuts every sequence into 16 chunks: one with fewer than 16 tokens leaves some of them empty.
      CHECK(std::count_if(batch.lengths.begin(), batch.lengths.end(), [](int64_t n) { return n <= 5; }) == 4);
      CHECK(*std::min_element(batch.lengths.begin(), batch.lengths.end()) == 2);
      CHECK(std::count_if(batch.lengths.begin(), batch.lengths.end(), [](int64_t n) { return n >= 40; }) == 4);
      CHECK(*std::max_element(batch.lengths.begin(), batch.lengths.end()) == kMaxSequenceLen);
      for (size_t i = 0; i < batch.lengths.size(); ++i) {
        CHECK(batch.response_lengths[i] >= 1);
        CHECK(batch.response_lengths[i] <= kMaxResponseLen);
        CHECK(batch.lengths[i] - batch.response_lengths[i] <= kMaxPromptLen);
      }
      const std::set<int64_t> prompts(batch.response_lengths.begin(), batch.response_lengths.end());
      CHECK(prompts.size() > 6);
      CHECK(*std::min_element(batch.tokens.begin(), batch.tokens.end()) >= 0);
      CHECK(*std::max_element(batch.tokens.begin(), batch.tokens.end()) < 61);
    }
  }
}

TEST_CASE("masks have holes, exactly one sample is wholly masked, and every group has something to learn from") {
  for (const uint64_t seed : {1, 7, 1234}) {
    for (const rollout::TrainBatch& batch : samples(seed)) {
      const std::vector<int64_t> counts = counted_tokens(batch);
      CHECK(std::count(counts.begin(), counts.end(), 0) == 1);
      int holes = 0;
      for (size_t i = 0; i < counts.size(); ++i) holes += counts[i] > 0 && counts[i] < batch.response_lengths[i];
      CHECK(holes >= 2);
      for (const double advantage : batch.advantages) CHECK(advantage != 0.0);
      for (const double logprob : batch.rollout_logprobs) CHECK(logprob < -1.0);
    }
  }
}

TEST_CASE("sequences are the samples' tokens") {
  const rollout::TrainBatch batch = samples(7)[0];
  const std::vector<std::vector<int64_t>> tokens = sequences(batch);
  CHECK(tokens.size() == 16);
  for (size_t i = 0; i < tokens.size(); ++i) CHECK(static_cast<int64_t>(tokens[i].size()) == batch.lengths[i]);
  CHECK(tokens[1][0] == batch.tokens[static_cast<size_t>(batch.lengths[0])]);
}
