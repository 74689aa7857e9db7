// The formulas against 60 cases computed with the loss functions of slime 624b824a in PyTorch
// (tests/data/algo/cases.json).
#include <doctest/doctest.h>

#include <cmath>

#include "algo/advantage.hpp"
#include "algo/policy_loss.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

using namespace vime;
using namespace vime::algo;

namespace {

constexpr double kTolerance = 1e-9;

std::vector<double> numbers(const Json& json) {
  return json.get<std::vector<double>>();
}

double largest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0.0;
  for (size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
  return largest;
}

struct Case {
  std::vector<double> logprobs, old_logprobs, ref_logprobs, advantages;
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  PolicyLossOptions options;
  Json expected;

  explicit Case(const Json& json)
      : logprobs(numbers(json["logprobs"])),
        old_logprobs(numbers(json["old"])),
        ref_logprobs(numbers(json["ref"])),
        advantages(numbers(json["advantages"])),
        lengths(json["lengths"].get<std::vector<int64_t>>()),
        expected(json["expected"]) {
    for (double m : numbers(json["mask"])) mask.push_back(m != 0.0 ? 1 : 0);
    options.eps_clip = json["eps_clip"].get<double>();
    options.eps_clip_high = json["eps_clip_high"].get<double>();
    if (!json["eps_clip_c"].is_null()) options.eps_clip_c = json["eps_clip_c"].get<double>();
  }

  PolicyLossInput input(double denominator) const {
    return {logprobs, old_logprobs, {}, {}, advantages, mask, lengths, denominator};
  }
  PolicyLoss loss(const PolicyLossOptions& with) const {
    return policy_loss(with, input(loss_denominator(with.reducer, mask, lengths)));
  }
  // The loss of every token on its own: one sample per token, nothing masked, weight 1.
  std::vector<LossTerms> token_terms(const PolicyLossOptions& with) const {
    const std::vector<uint8_t> all(logprobs.size(), 1);
    const std::vector<int64_t> ones(logprobs.size(), 1);
    return policy_loss(with, {logprobs, old_logprobs, {}, {}, advantages, all, ones, 1.0}).samples;
  }
};

const Json& cases() {
  static const Json all = parse_json(read_file(VIME_TEST_DATA "/algo/cases.json"), "cases.json");
  return all;
}

}  // namespace

TEST_CASE("PPO with and without dual clip agrees with the reference token by token") {
  REQUIRE(cases().size() == 60);
  for (const Json& json : cases()) {
    const Case c(json);
    std::vector<double> loss, clipped;
    for (const LossTerms& terms : c.token_terms(c.options)) {
      loss.push_back(terms.pg_loss);
      clipped.push_back(terms.pg_clipfrac);
    }
    CHECK(largest_difference(loss, numbers(c.expected["ppo"])) < kTolerance);
    CHECK(largest_difference(clipped, numbers(c.expected["ppo_clipfrac"])) == 0.0);
  }
}

TEST_CASE("the per-sample mean of PPO and its gradient agree with the reference") {
  for (const Json& json : cases()) {
    const Case c(json);
    const PolicyLoss loss = c.loss(c.options);
    CHECK(std::abs(loss.loss - c.expected["ppo_mean_loss"].get<double>()) < kTolerance);
    CHECK(largest_difference(loss.gradient, numbers(c.expected["ppo_mean_grad"])) < kTolerance);
  }
}

TEST_CASE("GSPO's sequence KL, token-mean loss and gradient agree with the reference") {
  for (const Json& json : cases()) {
    const Case c(json);
    PolicyLossOptions options = c.options;
    options.type = PolicyLossType::gspo;
    options.reducer = Reducer::token_mean;
    options.eps_clip_c.reset();  // the reference has no dual clip here
    const PolicyLoss loss = c.loss(options);
    CHECK(std::abs(loss.loss - c.expected["gspo_token_loss"].get<double>()) < kTolerance);
    CHECK(largest_difference(loss.gradient, numbers(c.expected["gspo_token_grad"])) < kTolerance);

    options.reducer = Reducer::sample_mean;  // with denominator 1 a sample's KL is its sequence KL itself
    const PolicyLoss plain = policy_loss(options, c.input(1.0));
    std::vector<double> sequence_kl;
    for (const LossTerms& terms : plain.samples) sequence_kl.push_back(terms.ppo_kl);
    CHECK(largest_difference(expand_to_tokens(sequence_kl, c.lengths), numbers(c.expected["gspo_kl"])) < kTolerance);
  }
}

TEST_CASE("CISPO and its gradient agree with the reference") {
  for (const Json& json : cases()) {
    const Case c(json);
    PolicyLossOptions options = c.options;
    options.type = PolicyLossType::cispo;
    options.reducer = Reducer::token_mean;
    options.eps_clip = 1.0;  // the reference leaves ratios unbounded below
    std::vector<double> loss;
    for (const LossTerms& terms : c.token_terms(options)) loss.push_back(terms.pg_loss);
    CHECK(largest_difference(loss, numbers(c.expected["cispo"])) < kTolerance);
    CHECK(largest_difference(c.loss(options).gradient, numbers(c.expected["cispo_token_grad"])) < kTolerance);
  }
}

TEST_CASE("the KL estimators agree with the reference") {
  // The reference casts log-probs to single precision first. With inputs rounded the same way k1 is exact; the others
  // are left with the reference's own roundings: values below 8, a few units of 2^-24 each.
  for (const Json& json : cases()) {
    const Case c(json);
    for (const char* name : {"k1", "k2", "k3", "low_var_kl"}) {
      std::vector<double> found;
      for (size_t t = 0; t < c.logprobs.size(); ++t) {
        const auto d = static_cast<float>(c.logprobs[t]) - static_cast<float>(c.ref_logprobs[t]);
        found.push_back(kl_estimate(parse_kl_type(name), static_cast<double>(d), 0.0).value);
      }
      const double tolerance = std::string(name) == "k1" ? 1e-15 : 1e-6;
      CHECK(largest_difference(found, numbers(c.expected["kl_" + std::string(name)])) < tolerance);
    }
  }
}

TEST_CASE("generalised advantages agree with the reference") {
  for (const Json& json : cases()) {
    const Json& gae = json["gae"];
    const Gae found =
        generalized_advantages(numbers(gae["rewards"]), numbers(gae["values"]), gae["shape"][0].get<int64_t>(),
                               gae["shape"][1].get<int64_t>(), gae["gamma"].get<double>(), gae["lambda"].get<double>());
    CHECK(largest_difference(found.advantages, numbers(gae["advantages"])) < kTolerance);
    CHECK(largest_difference(found.returns, numbers(gae["returns"])) < kTolerance);
  }
}
