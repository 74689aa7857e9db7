#include "algo/policy_loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"

using namespace vime::algo;

namespace {

const double kNaN = std::nan("");

struct Batch {
  std::vector<double> logprobs, old_logprobs, ref_logprobs, rollout_logprobs, advantages;
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  double denominator = 1.0;

  PolicyLossInput input() const {
    return {logprobs, old_logprobs, ref_logprobs, rollout_logprobs, advantages, mask, lengths, denominator};
  }
};

// Reproducible numbers; an empty response and one that is masked as a whole are among the samples.
Batch random_batch(uint64_t seed, const PolicyLossOptions& options) {
  Batch batch;
  batch.lengths = {4, 0, 7, 2, 1, 3};
  uint64_t counter = 0;
  const auto draw = [&](double low, double high) {
    return low + (high - low) * vime::uniform01(vime::mix_key(seed, counter++));
  };
  for (size_t sample = 0; sample < batch.lengths.size(); ++sample) {
    const double advantage = draw(-2.0, 2.0);
    for (int64_t t = 0; t < batch.lengths[sample]; ++t) {
      batch.old_logprobs.push_back(draw(-3.0, -0.1));
      batch.logprobs.push_back(batch.old_logprobs.back() + draw(-0.6, 0.6));
      batch.ref_logprobs.push_back(batch.old_logprobs.back() + draw(-0.3, 0.3));
      batch.rollout_logprobs.push_back(batch.old_logprobs.back() + draw(-1e-3, 1e-3));
      batch.advantages.push_back(advantage);
      batch.mask.push_back(sample == 3 ? 0 : draw(0.0, 1.0) < 0.8 ? 1 : 0);
    }
  }
  batch.denominator = loss_denominator(options.reducer, batch.mask, batch.lengths);
  return batch;
}

std::vector<PolicyLossOptions> all_options() {
  std::vector<PolicyLossOptions> all;
  for (PolicyLossType type : {PolicyLossType::ppo, PolicyLossType::gspo, PolicyLossType::cispo}) {
    for (Reducer reducer : {Reducer::sample_mean, Reducer::token_mean}) {
      for (double kl : {0.0, 0.3}) {
        for (double dual : {0.0, 1.2}) {
          PolicyLossOptions options;
          options.type = type;
          options.reducer = reducer;
          options.eps_clip_high = 0.28;
          options.kl_loss_coef = kl;
          options.kl_type = KlType::k3;
          if (dual > 0.0) options.eps_clip_c = dual;
          all.push_back(options);
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("the gradient agrees with central differences") {
  // Curvature is of order 1, so the difference errs by h^2 = 1e-12 and by rounding 1e-16 / h = 1e-10.
  const double h = 1e-6;
  for (PolicyLossOptions options : all_options()) {
    if (options.type == PolicyLossType::cispo) continue;  // its ratio is held constant: the next case
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Batch batch = random_batch(seed, options);
      const PolicyLoss loss = policy_loss(options, batch.input());
      for (size_t t = 0; t < batch.logprobs.size(); ++t) {
        Batch up = batch;
        Batch down = batch;
        up.logprobs[t] += h;
        down.logprobs[t] -= h;
        const double slope =
            (policy_loss(options, up.input()).loss - policy_loss(options, down.input()).loss) / (2 * h);
        CHECK(std::abs(loss.gradient[t] - slope) < 1e-8);
      }
    }
  }
}

TEST_CASE("CISPO's gradient is that of the log-prob with the clipped ratio held constant") {
  PolicyLossOptions options;
  options.type = PolicyLossType::cispo;
  options.reducer = Reducer::token_mean;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Batch batch = random_batch(seed, options);
    const PolicyLoss loss = policy_loss(options, batch.input());
    for (size_t t = 0; t < batch.logprobs.size(); ++t) {
      const double ratio = std::exp(batch.logprobs[t] - batch.old_logprobs[t]);
      const double limited = ratio < 0.8 ? 0.8 : ratio > 1.2 ? 1.2 : ratio;
      const double expected = batch.mask[t] == 0 ? 0.0 : -limited * batch.advantages[t] / batch.denominator;
      CHECK(loss.gradient[t] == doctest::Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("with new and old log-probs equal the PPO gradient is the plain policy gradient and the KL is zero") {
  PolicyLossOptions options;
  Batch batch{{-1.0, -2.0, -0.5}, {-1.0, -2.0, -0.5}, {}, {}, {2.0, 2.0, -1.0}, {1, 1, 1}, {2, 1}, 2.0};
  const PolicyLoss loss = policy_loss(options, batch.input());
  CHECK(loss.gradient[0] == doctest::Approx(-2.0 / 2 / 2));  // two tokens, two samples
  CHECK(loss.gradient[1] == doctest::Approx(-2.0 / 2 / 2));
  CHECK(loss.gradient[2] == doctest::Approx(1.0 / 1 / 2));
  CHECK(loss.loss == doctest::Approx((-2.0 + 1.0) / 2));
  const LossTerms terms = sum_terms(loss.samples);
  CHECK(terms.ppo_kl == 0.0);
  CHECK(terms.ppo_kl_abs == 0.0);
  CHECK(terms.pg_clipfrac == 0.0);
}

TEST_CASE("the two-sided KL figure sees differences that cancel in the signed one") {
  Batch batch{{-1.0, -2.0}, {-1.5, -1.5}, {}, {}, {1.0, 1.0}, {1, 1}, {2}, 1.0};
  const LossTerms terms = sum_terms(policy_loss({}, batch.input()).samples);
  CHECK(terms.ppo_kl == 0.0);
  CHECK(terms.ppo_kl_abs == doctest::Approx(0.5));
}

TEST_CASE("NaN and infinity at masked positions reach neither loss nor gradient") {
  for (PolicyLossOptions options : all_options()) {
    const Batch clean = random_batch(3, options);
    const PolicyLoss expected = policy_loss(options, clean.input());
    Batch dirty = clean;
    bool planted = false;
    for (size_t t = 0; t < dirty.mask.size(); ++t) {
      if (dirty.mask[t] != 0) continue;
      planted = true;
      dirty.logprobs[t] = kNaN;
      dirty.old_logprobs[t] = -std::numeric_limits<double>::infinity();
      dirty.ref_logprobs[t] = kNaN;
      dirty.rollout_logprobs[t] = kNaN;
      dirty.advantages[t] = kNaN;
    }
    REQUIRE(planted);
    const PolicyLoss found = policy_loss(options, dirty.input());
    CHECK(std::isfinite(found.loss));
    CHECK(found.loss == expected.loss);
    CHECK(found.gradient == expected.gradient);
    CHECK(sum_terms(found.samples).train_rollout_logprob_abs_diff ==
          sum_terms(expected.samples).train_rollout_logprob_abs_diff);
  }
}

TEST_CASE("NaN at a masked-in position is not hidden") {
  for (PolicyLossType type : {PolicyLossType::ppo, PolicyLossType::gspo, PolicyLossType::cispo}) {
    PolicyLossOptions options;
    options.type = type;
    for (double advantage : {1.0, 0.0}) {
      Batch batch{{kNaN}, {-1.0}, {}, {}, {advantage}, {1}, {1}, 1.0};
      CHECK(std::isnan(policy_loss(options, batch.input()).loss));
    }
  }
}

TEST_CASE("an advantage of zero stays without effect even where the ratio overflows") {
  Batch batch{{0.0}, {-1000.0}, {}, {}, {0.0}, {1}, {1}, 1.0};
  const PolicyLoss loss = policy_loss({}, batch.input());
  CHECK(loss.loss == 0.0);
  CHECK(loss.gradient[0] == 0.0);
}

TEST_CASE("batches without a token, with empty responses or all masked give zero") {
  for (PolicyLossOptions options : all_options()) {
    options.kl_loss_coef = 0.0;
    const PolicyLoss nothing = policy_loss(options, {});
    CHECK(nothing.loss == 0.0);
    CHECK(nothing.samples.empty());
    const std::vector<int64_t> lengths = {0, 2, 0};
    const std::vector<double> ones = {-1.0, -1.0};
    const std::vector<uint8_t> mask = {0, 0};
    const double denominator = loss_denominator(options.reducer, mask, lengths);
    CHECK(denominator == 3.0);
    const PolicyLoss masked = policy_loss(options, {ones, ones, {}, {}, ones, mask, lengths, denominator});
    CHECK(masked.loss == 0.0);
    CHECK(masked.gradient == std::vector<double>{0.0, 0.0});
    CHECK(masked.samples.size() == 3);
  }
}

TEST_CASE("micro-batches with the step's denominator add up to the whole batch") {
  for (const PolicyLossOptions& options : all_options()) {
    const Batch whole = random_batch(11, options);
    const PolicyLoss expected = policy_loss(options, whole.input());
    double loss = 0.0;
    std::vector<double> gradient;
    size_t start = 0;
    for (int64_t length : whole.lengths) {
      const auto n = static_cast<size_t>(length);
      const auto cut = [&](const std::vector<double>& values) { return std::span(values).subspan(start, n); };
      const std::vector<int64_t> one = {length};
      const PolicyLoss part = policy_loss(
          options, {cut(whole.logprobs), cut(whole.old_logprobs), cut(whole.ref_logprobs), cut(whole.rollout_logprobs),
                    cut(whole.advantages), std::span(whole.mask).subspan(start, n), one, whole.denominator});
      loss += part.loss;
      gradient.insert(gradient.end(), part.gradient.begin(), part.gradient.end());
      start += n;
    }
    CHECK(loss == expected.loss);
    CHECK(gradient == expected.gradient);
  }
}

TEST_CASE("the sample mean weighs samples alike and the token mean weighs tokens alike") {
  const std::vector<uint8_t> mask = {1, 1, 0, 1, 1, 1, 0};
  const std::vector<int64_t> lengths = {3, 0, 4};
  CHECK(loss_denominator(Reducer::sample_mean, mask, lengths) == 3.0);
  CHECK(loss_denominator(Reducer::token_mean, mask, lengths) == 6.0);  // 2 + 1 for the empty one + 3
  const auto by_sample = token_weights(Reducer::sample_mean, mask, lengths, 3.0);
  CHECK(by_sample[0] == doctest::Approx(1.0 / 6));
  CHECK(by_sample[2] == 0.0);
  CHECK(by_sample[3] == doctest::Approx(1.0 / 9));
  const auto by_token = token_weights(Reducer::token_mean, mask, lengths, 6.0);
  CHECK(by_token[0] == doctest::Approx(1.0 / 6));
  CHECK(by_token[3] == doctest::Approx(1.0 / 6));
  CHECK(weighted_sum(by_token, std::vector<double>{6, 0, kNaN, 6, 0, 0, kNaN}) == doctest::Approx(2.0));
}

TEST_CASE("the KL term and the engine's distance are reported, and a coefficient of zero leaves the gradient alone") {
  PolicyLossOptions options;
  options.kl_type = KlType::k2;
  Batch batch{{-1.0, -2.0}, {-1.0, -2.0}, {-1.5, -1.0}, {-1.1, -2.3}, {0.0, 0.0}, {1, 1}, {2}, 1.0};
  PolicyLoss loss = policy_loss(options, batch.input());
  CHECK(loss.samples[0].kl_loss == doctest::Approx((0.125 + 0.5) / 2));
  CHECK(loss.samples[0].train_rollout_logprob_abs_diff == doctest::Approx(0.2));
  CHECK(loss.loss == 0.0);
  CHECK(loss.gradient == std::vector<double>{0.0, 0.0});
  options.kl_loss_coef = 2.0;
  loss = policy_loss(options, batch.input());
  CHECK(loss.loss == doctest::Approx(2.0 * (0.125 + 0.5) / 2));
  CHECK(loss.gradient[0] == doctest::Approx(2.0 * 0.5 / 2));
  CHECK(loss.gradient[1] == doctest::Approx(2.0 * -1.0 / 2));
}

TEST_CASE("sizes that do not fit are caught") {
  Batch batch{{-1.0, -2.0}, {-1.0, -2.0}, {}, {}, {0.0, 0.0}, {1, 1}, {2}, 1.0};
  Batch wrong = batch;
  wrong.lengths = {3};
  CHECK_THROWS_AS(policy_loss({}, wrong.input()), vime::Error);
  wrong = batch;
  wrong.old_logprobs.pop_back();
  CHECK_THROWS_AS(policy_loss({}, wrong.input()), vime::Error);
  wrong = batch;
  wrong.denominator = 0.0;
  CHECK_THROWS_AS(policy_loss({}, wrong.input()), vime::Error);
  PolicyLossOptions options;
  options.kl_loss_coef = 0.1;
  CHECK_THROWS_AS(policy_loss(options, batch.input()), vime::Error);
  options = {};
  options.eps_clip_c = 1.0;
  CHECK_THROWS_AS(policy_loss(options, batch.input()), vime::Error);
}

TEST_CASE("estimator names choose the loss") {
  CHECK(policy_loss_type("grpo") == PolicyLossType::ppo);
  CHECK(policy_loss_type("gspo") == PolicyLossType::gspo);
  CHECK(policy_loss_type("cispo") == PolicyLossType::cispo);
  try {
    policy_loss_type("gpro");
    FAIL("accepted");
  } catch (const vime::Error& e) {
    CHECK(e.hint() == "did you mean \"grpo\"?");
  }
}

TEST_CASE(
    "the supervised loss is the weighted mean negative log-prob, whatever is clipped, and its gradient is constant") {
  PolicyLossOptions options;
  options.type = PolicyLossType::sft;
  for (const Reducer reducer : {Reducer::sample_mean, Reducer::token_mean}) {
    options.reducer = reducer;
    Batch batch = random_batch(5, options);
    batch.old_logprobs.clear();
    batch.advantages.clear();
    batch.ref_logprobs.clear();
    batch.rollout_logprobs.clear();
    const std::vector<double> weights = token_weights(reducer, batch.mask, batch.lengths, batch.denominator);
    const PolicyLoss loss = policy_loss(options, batch.input());
    CHECK(loss.loss == doctest::Approx(-weighted_sum(weights, batch.logprobs)).epsilon(1e-12));
    for (size_t t = 0; t < weights.size(); ++t) CHECK(loss.gradient[t] == -weights[t]);
  }
}
