#include "algo/reduce.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace vime::algo {
namespace {

void check_lengths(size_t tokens, std::span<const int64_t> lengths) {
  int64_t sum = 0;
  for (int64_t length : lengths) {
    VIME_CHECK(length >= 0, "a response has a negative length");
    sum += length;
  }
  VIME_CHECK(sum == static_cast<int64_t>(tokens),
             "the lengths add up to " + std::to_string(sum) + " tokens, expected " + std::to_string(tokens));
}

int64_t masked_tokens(std::span<const uint8_t> mask) {
  return std::count_if(mask.begin(), mask.end(), [](uint8_t m) { return m != 0; });
}

}  // namespace

double loss_denominator(Reducer reducer, std::span<const uint8_t> mask, std::span<const int64_t> lengths) {
  check_lengths(mask.size(), lengths);
  if (reducer == Reducer::sample_mean) return static_cast<double>(lengths.size());
  int64_t tokens = 0;
  size_t start = 0;
  for (int64_t length : lengths) {
    const auto count = static_cast<size_t>(length);
    tokens += std::max<int64_t>(1, masked_tokens(mask.subspan(start, count)));
    start += count;
  }
  return static_cast<double>(tokens);
}

std::vector<double> token_weights(Reducer reducer, std::span<const uint8_t> mask, std::span<const int64_t> lengths,
                                  double denominator) {
  check_lengths(mask.size(), lengths);
  VIME_CHECK(denominator > 0.0, "the loss denominator is not positive");
  std::vector<double> weights(mask.size(), 0.0);
  size_t start = 0;
  for (int64_t length : lengths) {
    const auto count = static_cast<size_t>(length);
    const int64_t tokens = masked_tokens(mask.subspan(start, count));
    const double share = reducer == Reducer::sample_mean ? static_cast<double>(std::max<int64_t>(1, tokens)) : 1.0;
    for (size_t t = start; t < start + count; ++t) {
      if (mask[t] != 0) weights[t] = 1.0 / (share * denominator);
    }
    start += count;
  }
  return weights;
}

double weighted_sum(std::span<const double> weights, std::span<const double> values) {
  VIME_CHECK(weights.size() == values.size(), "one weight per value");
  double sum = 0.0;
  for (size_t t = 0; t < weights.size(); ++t) {
    if (weights[t] != 0.0) sum += weights[t] * values[t];
  }
  return sum;
}

std::vector<double> expand_to_tokens(std::span<const double> per_sample, std::span<const int64_t> lengths) {
  VIME_CHECK(per_sample.size() == lengths.size(), "one value per sample");
  std::vector<double> values;
  for (size_t i = 0; i < lengths.size(); ++i) {
    VIME_CHECK(lengths[i] >= 0, "a response has a negative length");
    values.insert(values.end(), static_cast<size_t>(lengths[i]), per_sample[i]);
  }
  return values;
}

}  // namespace vime::algo
