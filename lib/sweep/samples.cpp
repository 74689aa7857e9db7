#include "sweep/samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"

namespace vime::sweep {
namespace {

// What a random number is drawn for; the key is (seed, purpose, sample, position).
enum class Draw : uint64_t { length = 1, prompt, token, logprob, reward, mask, order };

class Draws {
 public:
  Draws(uint64_t seed, int64_t rollout) : key_(mix_key(seed, 0x73776565ull, static_cast<uint64_t>(rollout))) {}
  uint64_t key(Draw draw, int64_t sample, int64_t position = 0) const {
    return mix_key(mix_key(key_, static_cast<uint64_t>(draw)), static_cast<uint64_t>(sample),
                   static_cast<uint64_t>(position));
  }
  double uniform(Draw draw, int64_t sample, int64_t position = 0) const {
    return uniform01(key(draw, sample, position));
  }
  // In [least, most].
  int64_t between(int64_t least, int64_t most, Draw draw, int64_t sample, int64_t position = 0) const {
    return least + static_cast<int64_t>(uniform(draw, sample, position) * static_cast<double>(most - least + 1));
  }

 private:
  uint64_t key_;
};

// A quarter of the samples has 2 to 5 tokens, one of each; a quarter 40 to 60, the longest among them; the rest lies
// between.
int64_t length_of(int64_t sample, int64_t samples, const Draws& draws) {
  const int64_t quarter = samples / 4;
  if (sample < quarter) return 2 + sample % 4;
  if (sample == quarter) return kMaxSequenceLen;
  if (sample < 2 * quarter) return draws.between(40, kMaxSequenceLen, Draw::length, sample);
  return draws.between(6, 39, Draw::length, sample);
}

rollout::Sample make_sample(int64_t index, int64_t length, const SampleOptions& options, const Draws& draws) {
  rollout::Sample sample;
  sample.index = index;
  sample.group_id = sample.prompt_id = index / kGroupSize;
  const int64_t prompt = draws.between(1, std::min(length - 1, kMaxPromptLen), Draw::prompt, index);
  sample.response_len = length - prompt;
  for (int64_t i = 0; i < length; ++i) {
    sample.tokens.push_back(draws.between(0, options.vocab_size - 1, Draw::token, index, i));
  }
  // About what an untrained model says of any token.
  const double even = std::log(static_cast<double>(options.vocab_size));
  for (int64_t i = 0; i < sample.response_len; ++i) {
    sample.rollout_logprobs.push_back(-even * (0.8 + 0.4 * draws.uniform(Draw::logprob, index, i)));
  }
  sample.reward = draws.uniform(Draw::reward, index);
  sample.finish_reason = "stop";
  return sample;
}

// A third of the samples has holes, one has nothing left. Every token of the others counts, and so does the last token
// of a sample with holes: it stays in the loss.
void mask_out(rollout::TrainBatch& batch, const Draws& draws) {
  const std::vector<int64_t> starts = rollout::offsets(batch.response_lengths);
  int64_t longest_masked = -1;
  for (int64_t sample = 0; sample < batch.samples(); ++sample) {
    const auto begin = static_cast<size_t>(starts[static_cast<size_t>(sample)]);
    const auto end = static_cast<size_t>(starts[static_cast<size_t>(sample) + 1]);
    if (sample % 3 == 1) {
      for (size_t i = begin; i + 1 < end; ++i) {
        batch.loss_mask[i] = draws.uniform(Draw::mask, sample, static_cast<int64_t>(i - begin)) < 0.6 ? 1 : 0;
      }
    }
    if (longest_masked < 0 && end - begin >= 6 && sample % 3 == 2) {
      longest_masked = sample;
      std::fill(batch.loss_mask.begin() + static_cast<int64_t>(begin),
                batch.loss_mask.begin() + static_cast<int64_t>(end), uint8_t{0});
    }
  }
}

}  // namespace

int64_t sample_count(const std::vector<Leg>& legs) {
  int64_t unit = kGroupSize;
  for (const Leg& leg : legs) unit = std::lcm(unit, int64_t{2} * leg.dp);
  return (16 + unit - 1) / unit * unit;
}

std::vector<rollout::TrainBatch> make_samples(const SampleOptions& options, const std::string& run_id) {
  VIME_CHECK(options.samples >= 16 && options.samples % kGroupSize == 0 && options.vocab_size > 1,
             std::to_string(options.samples) + " samples");
  std::vector<rollout::TrainBatch> batches;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Draws draws(options.seed, step);
    // Long and short ones stand side by side, and every group has both.
    const std::vector<uint64_t> order = permutation(static_cast<uint64_t>(options.samples), draws.key(Draw::order, 0));
    std::vector<rollout::Sample> samples;
    for (int64_t i = 0; i < options.samples; ++i) {
      const auto rank = static_cast<int64_t>(order[static_cast<size_t>(i)]);
      samples.push_back(make_sample(i, length_of(rank, options.samples, draws), options, draws));
    }
    rollout::TrainBatch batch = rollout::make_train_batch(samples, run_id, step, step, options.advantage);
    if (!options.normalize_rewards) batch.advantages = batch.rewards;
    mask_out(batch, draws);
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<std::vector<int64_t>> sequences(const rollout::TrainBatch& batch) {
  const std::vector<int64_t> starts = rollout::offsets(batch.lengths);
  std::vector<std::vector<int64_t>> tokens;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    tokens.emplace_back(batch.tokens.begin() + starts[i], batch.tokens.begin() + starts[i + 1]);
  }
  return tokens;
}

}  // namespace vime::sweep
