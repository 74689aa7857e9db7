#include "executor/sampling.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/error.hpp"

using namespace vime;
using namespace vime::executor;

namespace {

const std::vector<float> kLogits = {0.5f, -1.0f, 2.0f, 1.5f, -3.0f, 1.5f};

engine::SampleSpec spec_of(float temperature) {
  engine::SampleSpec spec;
  spec.temperature = temperature;
  return spec;
}

engine::Sampled drawn(const engine::SampleSpec& spec, LogprobsMode mode = LogprobsMode::processed) {
  return draw(kLogits.data(), static_cast<int64_t>(kLogits.size()), spec, mode);
}

// softmax(logits / temperature) over `ids`, computed here from the definition.
std::map<int32_t, double> distribution(double temperature, const std::vector<int32_t>& ids) {
  std::map<int32_t, double> probabilities;
  double total = 0;
  for (const int32_t id : ids)
    total += probabilities[id] = std::exp(static_cast<double>(kLogits[static_cast<std::size_t>(id)]) / temperature);
  for (auto& [id, probability] : probabilities) probability /= total;
  return probabilities;
}

// Draws over many seeds; ids outside `expected` never come, and chi-square is below its 1e-6 quantile (5 degrees of
// freedom: 35.9; fewer degrees have lower quantiles).
void check_frequencies(engine::SampleSpec spec, const std::map<int32_t, double>& expected) {
  constexpr int kDraws = 60000;
  std::map<int32_t, int> seen;
  for (int i = 0; i < kDraws; ++i) {
    spec.seed = static_cast<uint64_t>(i % 300);
    spec.step = i / 300;
    const engine::Sampled sampled = drawn(spec);
    REQUIRE(expected.count(sampled.token) == 1);
    REQUIRE(sampled.logprob == doctest::Approx(std::log(expected.at(sampled.token))).epsilon(1e-5));
    ++seen[sampled.token];
  }
  double chi_square = 0;
  for (const auto& [id, probability] : expected) {
    const double mean = probability * kDraws;
    chi_square += (seen[id] - mean) * (seen[id] - mean) / mean;
  }
  CHECK(chi_square < 35.9);
}

}  // namespace

TEST_CASE("draws follow the distribution, and each says its own log-prob") {
  check_frequencies(spec_of(1.0f), distribution(1.0, {0, 1, 2, 3, 4, 5}));
  check_frequencies(spec_of(0.5f), distribution(0.5, {0, 1, 2, 3, 4, 5}));
}

TEST_CASE("top_k keeps ties with the k-th, top_p the smallest sufficient set, min_p what is near the largest") {
  engine::SampleSpec top_k = spec_of(1.0f);
  top_k.top_k = 2;
  check_frequencies(top_k, distribution(1.0, {2, 3, 5}));
  // p(2) = 0.40; p(3) = p(5) = 0.24: two tokens reach 0.5, the lower id of the equals comes first.
  engine::SampleSpec top_p = spec_of(1.0f);
  top_p.top_p = 0.5f;
  check_frequencies(top_p, distribution(1.0, {2, 3}));
  top_p.top_p = 0.01f;
  check_frequencies(top_p, distribution(1.0, {2}));
  // exp(1.5 - 2) = 0.61, exp(0.5 - 2) = 0.22.
  engine::SampleSpec min_p = spec_of(1.0f);
  min_p.min_p = 0.3f;
  check_frequencies(min_p, distribution(1.0, {2, 3, 5}));
}

TEST_CASE("banned ids are not drawn") {
  engine::SampleSpec spec = spec_of(1.0f);
  spec.banned = {2, 4, 99};
  check_frequencies(spec, distribution(1.0, {0, 1, 3, 5}));
  spec.temperature = 0;
  CHECK(drawn(spec).token == 3);
  spec.banned = {0, 1, 2, 3, 4, 5};
  CHECK_THROWS_AS(drawn(spec), Error);
}

TEST_CASE("temperature 0 takes the lowest id of the largest logits") {
  CHECK(drawn(spec_of(0.0f)).token == 2);
  CHECK(drawn(spec_of(0.0f)).logprob == doctest::Approx(std::log(distribution(1.0, {0, 1, 2, 3, 4, 5})[2])));
  const std::vector<float> ties = {1.0f, 3.0f, 3.0f};
  CHECK(draw(ties.data(), 3, spec_of(0.0f), LogprobsMode::processed).token == 1);
}

TEST_CASE("raw log-probs are those of the untouched logits") {
  engine::SampleSpec spec = spec_of(0.5f);
  spec.top_k = 1;
  CHECK(drawn(spec).logprob == 0.0f);
  CHECK(drawn(spec, LogprobsMode::raw).logprob == doctest::Approx(std::log(distribution(1.0, {0, 1, 2, 3, 4, 5})[2])));
}

TEST_CASE("a draw depends on seed and step only") {
  engine::SampleSpec spec = spec_of(1.0f);
  int changed_by_seed = 0;
  int changed_by_step = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    spec.seed = i;
    spec.step = 3;
    const int32_t token = drawn(spec).token;
    CHECK(drawn(spec).token == token);
    spec.step = 4;
    changed_by_step += drawn(spec).token != token ? 1 : 0;
    spec.step = 3;
    spec.seed = i + 1000;
    changed_by_seed += drawn(spec).token != token ? 1 : 0;
  }
  CHECK(changed_by_seed > 10);
  CHECK(changed_by_step > 10);
}

TEST_CASE("logits that are not finite are an error that names the token") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits = {1.0f, bad, 0.0f};
    try {
      draw(logits.data(), 3, spec_of(1.0f), LogprobsMode::processed);
      FAIL("it was drawn");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::check_failed);
      CHECK(error.message().find("token 1") != std::string::npos);
    }
  }
}

TEST_CASE("a looked-up token has its log softmax, its rank and the most probable token beside it") {
  const auto whole = distribution(1.0, {0, 1, 2, 3, 4, 5});
  const int32_t ranks[] = {4, 5, 1, 3, 6, 3};  // 3 and 5 are equal: both have three tokens at least as probable
  for (int32_t id = 0; id < 6; ++id) {
    const engine::Sampled found = look_up(kLogits.data(), 6, id);
    CHECK(found.token == id);
    CHECK(found.logprob == doctest::Approx(std::log(whole.at(id))).epsilon(1e-6));
    CHECK(found.rank == ranks[id]);
    CHECK(found.top_token == 2);
    CHECK(found.top_logprob == doctest::Approx(std::log(whole.at(2))).epsilon(1e-6));
  }
  const std::vector<float> bad = {0.0f, std::numeric_limits<float>::infinity()};
  CHECK_THROWS_AS(look_up(bad.data(), 2, 0), Error);
  CHECK_THROWS_AS(look_up(kLogits.data(), 6, 6), Error);
}
