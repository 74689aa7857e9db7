// The kernels of loss and optimizer against float64, as in kernels_test.cpp.
#include <deque>
#include <limits>

#include "base/error.hpp"
#include "gpu/buffers.hpp"
#include "gpu/logprob_kernels.hpp"
#include "gpu/optimizer_kernels.hpp"

using namespace vime;
using namespace vime::test;
using gpu::Bf16;

namespace {

size_t at(int64_t index) {
  return static_cast<size_t>(index);
}

struct LogprobCase {
  int64_t rows, vocab;
  int ranks = 1;
  float temperature = 1.0f;
  int64_t padding = 0;  // columns behind each row
  double deviation = 3.0;
};

const std::vector<LogprobCase> kLogprobs = {
    {1, 1}, {2, 5}, {5, 1000, 1, 0.7f}, {3, 151936}, {9, 1001, 2, 1.3f, 3}, {4, 5, 4}, {3, 70001, 3, 1.0f, 1, 20.0}};

// Columns of a rank: [begin, end) of ceil(vocab / ranks) each, the last ones short or empty.
std::pair<int64_t, int64_t> part_of(const LogprobCase& c, int rank) {
  const int64_t part = (c.vocab + c.ranks - 1) / c.ranks;
  return {std::min(c.vocab, part * rank), std::min(c.vocab, part * (rank + 1))};
}

template <class T>
T element_of(double value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return narrow(value);
  } else {
    return static_cast<T>(value);
  }
}

struct RowReference {
  double logprob = 0, entropy = 0, log_sum = 0;
  std::vector<double> gradient;
};

RowReference reference_of_row(const std::vector<double>& logits, int64_t target, double temperature, double d_logprob,
                              double d_entropy) {
  RowReference row;
  const double largest = *std::max_element(logits.begin(), logits.end()) / temperature;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit / temperature - largest);
  row.log_sum = largest + std::log(sum);
  row.logprob = logits[at(target)] / temperature - row.log_sum;
  for (const double logit : logits) {
    const double log_p = logit / temperature - row.log_sum;
    row.entropy -= std::exp(log_p) * log_p;
  }
  for (const double logit : logits) {
    const double log_p = logit / temperature - row.log_sum;
    const double p = std::exp(log_p);
    row.gradient.push_back((-d_logprob * p - d_entropy * p * (log_p + row.entropy)) / temperature);
  }
  row.gradient[at(target)] += d_logprob / temperature;
  return row;
}

template <class T>
void compare_logprobs(const LogprobCase& c, uint64_t seed, bool with_entropy) {
  CAPTURE(c.rows);
  CAPTURE(c.vocab);
  CAPTURE(c.ranks);
  Random random(seed);
  std::normal_distribution<double> normal(0.0, c.deviation);
  std::vector<std::vector<T>> logits(at(c.rows));
  std::vector<int64_t> targets;
  for (auto& row : logits) {
    for (int64_t i = 0; i < c.vocab; ++i) row.push_back(element_of<T>(normal(random)));
    targets.push_back(static_cast<int64_t>(random() % at(c.vocab)));
  }
  targets.back() = c.vocab - 1;
  const auto d_logprob = random_floats(random, c.rows);
  const auto d_entropy = random_floats(random, c.rows);
  std::vector<double> logprobs, entropies, log_sums;
  std::vector<RowReference> references;
  for (int64_t row = 0; row < c.rows; ++row) {
    references.push_back(reference_of_row(widen(logits[at(row)]), targets[at(row)], c.temperature, d_logprob[at(row)],
                                          with_entropy ? d_entropy[at(row)] : 0.0));
    logprobs.push_back(references.back().logprob);
    entropies.push_back(references.back().entropy);
    log_sums.push_back(references.back().log_sum);
  }

  const Array<int64_t> targets_there(targets);
  const Array<float> d_logprob_there(d_logprob), d_entropy_there(d_entropy);
  std::vector<std::vector<T>> gradients;
  for (int turn = 0; turn < 2; ++turn) {
    const Array<float> parts(at(c.ranks * gpu::kLogprobParts * c.rows));
    const Array<float> logprob(at(c.rows)), entropy(at(c.rows)), log_sum(at(c.rows));
    std::deque<Array<T>> chunks;
    const auto chunk_of = [&](int rank) {
      const auto [begin, end] = part_of(c, rank);
      gpu::Logits chunk;
      chunk.values = chunks[static_cast<size_t>(rank)].data();
      chunk.element = std::is_same_v<T, Bf16> ? gpu::Element::bf16 : gpu::Element::f32;
      chunk.rows = c.rows;
      chunk.columns = end - begin;
      chunk.stride = end - begin + c.padding;
      chunk.targets = targets_there.data();
      chunk.vocab_begin = begin;
      chunk.temperature = c.temperature;
      return chunk;
    };
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto [begin, end] = part_of(c, rank);
      std::vector<T> values;
      for (const auto& row : logits) {
        values.insert(values.end(), row.begin() + begin, row.begin() + end);
        values.insert(values.end(), at(c.padding), element_of<T>(std::numeric_limits<double>::infinity()));
      }
      chunks.emplace_back(values);
      gpu::logprob_parts(chunk_of(rank), parts.data() + rank * gpu::kLogprobParts * c.rows, nullptr);
    }
    gpu::combine_logprob_parts(parts.data(), c.ranks, c.rows, logprob.data(), entropy.data(), log_sum.data(), nullptr);
    // float32 keeps 6e-8 of logits of up to 100.
    check_close(logprob.read(), logprobs, 1e-6, 1e-5);
    check_close(entropy.read(), entropies, 1e-5, 2e-6);
    check_close(log_sum.read(), log_sums, 1e-6, 1e-6);
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto [begin, end] = part_of(c, rank);
      gpu::logprob_backward(chunk_of(rank), log_sum.data(), with_entropy ? entropy.data() : nullptr,
                            d_logprob_there.data(), with_entropy ? d_entropy_there.data() : nullptr, nullptr);
      std::vector<double> expected;
      for (const RowReference& row : references) {
        expected.insert(expected.end(), row.gradient.begin() + begin, row.gradient.begin() + end);
        expected.insert(expected.end(), at(c.padding), 0.0);
      }
      std::vector<T> found = chunks[static_cast<size_t>(rank)].read();
      for (int64_t row = 0; row < c.rows; ++row) {
        for (int64_t i = 0; i < c.padding; ++i) {
          T& behind = found[at((row + 1) * (end - begin + c.padding) - 1 - i)];
          CHECK(std::isinf(wide(behind)));
          behind = 0;
        }
      }
      const bool rounds = std::is_same_v<T, Bf16>;
      check_close(found, expected, rounds ? kRounding + 2e-5 : 2e-5, 1e-6);
      gradients.push_back(std::move(found));
    }
  }
  const size_t half = gradients.size() / 2;
  for (size_t i = 0; i < half; ++i) CHECK(gradients[i] == gradients[half + i]);
}

}  // namespace

TEST_CASE("log-probs, entropies and their gradients over the logits are those of the softmax, in one part or several") {
  uint64_t seed = 1;
  for (const LogprobCase& c : kLogprobs) {
    compare_logprobs<Bf16>(c, seed++, true);
    compare_logprobs<Bf16>(c, seed++, false);
    compare_logprobs<float>(c, seed++, true);
  }
}

TEST_CASE("rows of logits that overlap and temperatures of 0 are an error") {
  gpu::Logits logits;
  logits.rows = 1;
  logits.columns = 8;
  logits.stride = 4;
  CHECK_THROWS_AS(gpu::logprob_parts(logits, nullptr, nullptr), Error);
  logits.stride = 8;
  logits.temperature = 0;
  CHECK_THROWS_AS(gpu::logprob_parts(logits, nullptr, nullptr), Error);
}

namespace {

struct AdamReference {
  std::vector<double> master, exp_avg, exp_avg_sq;
};

void reference_step(AdamReference& state, const std::vector<float>& gradient, const gpu::AdamwStep& step,
                    const std::vector<gpu::DecayRange>& ranges) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    double decay = 0;
    for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
      if (static_cast<int64_t>(i) < range->end) decay = range->decay;
    }
    const double g = static_cast<double>(gradient[i]) * step.gradient_scale;
    state.exp_avg[i] = step.beta1 * state.exp_avg[i] + (1.0 - step.beta1) * g;
    state.exp_avg_sq[i] = step.beta2 * state.exp_avg_sq[i] + (1.0 - step.beta2) * g * g;
    state.master[i] *= 1.0 - static_cast<double>(step.lr) * decay;
    state.master[i] -=
        step.lr / step.correction1 * state.exp_avg[i] / (std::sqrt(state.exp_avg_sq[i] / step.correction2) + step.eps);
  }
}

}  // namespace

TEST_CASE("steps of AdamW are the formula, with decay where the ranges say so, and write the rounded weight") {
  for (const int64_t count : {1, 3, 1024, 40007}) {
    // Part of a buffer that begins anywhere, and one at the beginning.
    for (const int64_t offset : {0, 1}) {
      CAPTURE(count);
      CAPTURE(offset);
      Random random(static_cast<uint64_t>(count + offset));
      std::vector<gpu::DecayRange> ranges = {{1, 0.0f}, {2, 0.1f}, {count / 2 + 2, 0.0f}, {count / 2 + 3, 0.3f}};
      // More than one launch takes, of odd lengths.
      for (int64_t end = count / 2 + 4; end < count + 4 && ranges.size() < 1000; end += 1 + end % 5) {
        ranges.push_back({end, static_cast<float>(end % 7) * 0.1f});
      }
      ranges.push_back({count + 8, 0.1f});
      const auto master = random_floats(random, count + offset, 0.02);
      const Array<float> master_there(master), exp_avg(std::vector<float>(master.size())),
          exp_avg_sq(std::vector<float>(master.size()));
      const Array<Bf16> weight(master.size());
      AdamReference reference;
      reference.master.assign(master.begin() + offset, master.end());
      reference.exp_avg.assign(at(count), 0);
      reference.exp_avg_sq.assign(at(count), 0);
      for (int turn = 1; turn <= 3; ++turn) {
        auto gradient = random_floats(random, count + offset, 1e-3);
        const Array<float> gradient_there(gradient);
        gradient.erase(gradient.begin(), gradient.begin() + offset);
        gpu::AdamwStep step = {1e-3f, 0.9f, 0.95f, 1e-8f};
        step.correction1 = static_cast<float>(1 - std::pow(0.9, turn));
        step.correction2 = static_cast<float>(1 - std::pow(0.95, turn));
        step.gradient_scale = 0.25f;
        const gpu::AdamwState state = {master_there.data() + offset, exp_avg.data() + offset,
                                       exp_avg_sq.data() + offset,   gradient_there.data() + offset,
                                       weight.data() + offset,       count};
        gpu::adamw(state, step, ranges.data(), static_cast<int64_t>(ranges.size()), nullptr);
        reference_step(reference, gradient, step, ranges);
      }
      const auto behind = [&](auto values) {
        values.erase(values.begin(), values.begin() + offset);
        return values;
      };
      const auto found = behind(master_there.read());
      // Rounding of float32 in three steps of 1e-3.
      check_close(found, reference.master, 3e-7, 2e-9);
      check_close(behind(exp_avg.read()), reference.exp_avg, 1e-5, 1e-11);
      check_close(behind(exp_avg_sq.read()), reference.exp_avg_sq, 1e-5, 1e-16);
      std::vector<Bf16> rounded;
      for (const float value : found) rounded.push_back(narrow(value));
      CHECK(behind(weight.read()) == rounded);
    }
  }
}

TEST_CASE("without decay and without a weight the step is that of Adam") {
  Random random(3);
  const auto master = random_floats(random, 100);
  const auto gradient = random_floats(random, 100);
  const Array<float> master_there(master), gradient_there(gradient), exp_avg(std::vector<float>(100)),
      exp_avg_sq(std::vector<float>(100));
  gpu::AdamwStep step = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.05f};
  gpu::adamw({master_there.data(), exp_avg.data(), exp_avg_sq.data(), gradient_there.data(), nullptr, 100}, step,
             nullptr, 0, nullptr);
  AdamReference reference{widen(master), std::vector<double>(100), std::vector<double>(100)};
  reference_step(reference, gradient, step, {});
  check_close(master_there.read(), reference.master, 1e-6, 1e-7);
}

TEST_CASE("sums of squares are exact to float64, the same bits every time, and add up") {
  Random random(4);
  for (const int64_t count : {0, 1, 5, 4096, 3000003}) {
    for (const int64_t offset : {0, 1}) {
      CAPTURE(count);
      const auto values = random_floats(random, count + offset);
      const Array<float> there(values);
      long double sum = 0;
      for (int64_t i = offset; i < count + offset; ++i) sum += wide(values[at(i)]) * wide(values[at(i)]);
      const auto expected = static_cast<double>(sum);
      std::vector<double> found;
      for (int turn = 0; turn < 2; ++turn) {
        const Array<double> workspace(at(gpu::kSquareSums)), result(std::vector<double>{2.5});
        gpu::add_sum_of_squares(there.data() + offset, count, workspace.data(), result.data(), nullptr);
        found.push_back(result.read()[0]);
      }
      CHECK(found[0] == found[1]);
      CHECK(found[0] == doctest::Approx(expected + 2.5).epsilon(1e-13));
    }
  }
}
