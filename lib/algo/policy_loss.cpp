#include "algo/policy_loss.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::algo {
namespace {

// The clipped objective at one token as a function of the log-ratio (new - old log-prob).
struct Clipped {
  double loss = 0.0;
  double slope = 0.0;  // d loss / d log-ratio
  bool clipped = false;
};

double clip_ratio(double ratio, const PolicyLossOptions& options) {
  return std::clamp(ratio, 1.0 - options.eps_clip, 1.0 + options.eps_clip_high);
}

Clipped clipped_objective(double log_ratio, double advantage, const PolicyLossOptions& options) {
  // Groups of equal rewards have advantage 0: no signal, and no 0 x infinity where the ratio overflows. NaN still
  // shows.
  if (advantage == 0.0 && !std::isnan(log_ratio)) return {};
  const double ratio = std::exp(log_ratio);
  const double plain = -ratio * advantage;
  const double limited = -clip_ratio(ratio, options) * advantage;
  Clipped result;
  // d(-ratio * A) / d log-ratio is -ratio * A itself. Where the clipped branch is larger it is constant.
  result.clipped = limited > plain;
  result.loss = result.clipped ? limited : plain;
  result.slope = result.clipped ? 0.0 : plain;
  if (options.eps_clip_c && advantage < 0.0) {
    const double bound = -*options.eps_clip_c * advantage;
    if (bound < result.loss) {
      result.loss = bound;
      result.slope = 0.0;
    }
  }
  return result;
}

// One sample's tokens within the micro-batch.
struct SampleView {
  size_t start = 0;
  size_t end = 0;
};

// Adds the policy term of a sample to its figures and to the gradient.
void add_token_policy(const PolicyLossOptions& options, const PolicyLossInput& in, const SampleView& view,
                      std::span<const double> weights, LossTerms& terms, std::vector<double>& gradient) {
  for (size_t t = view.start; t < view.end; ++t) {
    if (weights[t] == 0.0) continue;
    const double log_ratio = in.logprobs[t] - in.old_logprobs[t];
    Clipped token;
    if (options.type == PolicyLossType::cispo) {
      const double ratio = std::exp(log_ratio);
      const double limited = clip_ratio(ratio, options);
      token.slope = -limited * in.advantages[t];  // here d loss / d logprob
      token.loss = token.slope * in.logprobs[t];
      token.clipped = limited != ratio;
    } else {
      token = clipped_objective(log_ratio, in.advantages[t], options);
    }
    terms.pg_loss += weights[t] * token.loss;
    terms.pg_clipfrac += weights[t] * (token.clipped ? 1.0 : 0.0);
    terms.ppo_kl += weights[t] * -log_ratio;
    terms.ppo_kl_abs += weights[t] * std::abs(log_ratio);
    gradient[t] += weights[t] * token.slope;
  }
}

void add_supervised(const PolicyLossInput& in, const SampleView& view, std::span<const double> weights,
                    LossTerms& terms, std::vector<double>& gradient) {
  for (size_t t = view.start; t < view.end; ++t) {
    if (weights[t] == 0.0) continue;
    terms.pg_loss -= weights[t] * in.logprobs[t];
    gradient[t] -= weights[t];
  }
}

// GSPO: all tokens share exp(mean log-ratio), so every token's slope reaches every log-prob of the sequence.
void add_sequence_policy(const PolicyLossOptions& options, const PolicyLossInput& in, const SampleView& view,
                         std::span<const double> weights, LossTerms& terms, std::vector<double>& gradient) {
  double sum = 0.0;
  double tokens = 0.0;
  for (size_t t = view.start; t < view.end; ++t) {
    if (weights[t] == 0.0) continue;
    sum += in.logprobs[t] - in.old_logprobs[t];
    tokens += 1.0;
  }
  if (tokens == 0.0) return;
  const double log_ratio = sum / tokens;
  double slope = 0.0;
  for (size_t t = view.start; t < view.end; ++t) {
    if (weights[t] == 0.0) continue;
    const Clipped token = clipped_objective(log_ratio, in.advantages[t], options);
    terms.pg_loss += weights[t] * token.loss;
    terms.pg_clipfrac += weights[t] * (token.clipped ? 1.0 : 0.0);
    terms.ppo_kl += weights[t] * -log_ratio;
    terms.ppo_kl_abs += weights[t] * std::abs(log_ratio);
    slope += weights[t] * token.slope;
  }
  for (size_t t = view.start; t < view.end; ++t) {
    if (weights[t] != 0.0) gradient[t] += slope / tokens;
  }
}

void add_comparisons(const PolicyLossOptions& options, const PolicyLossInput& in, const SampleView& view,
                     std::span<const double> weights, LossTerms& terms, std::vector<double>& gradient) {
  for (size_t t = view.start; t < view.end; ++t) {
    if (weights[t] == 0.0) continue;
    if (!in.ref_logprobs.empty()) {
      const ValueAndSlope kl = kl_estimate(options.kl_type, in.logprobs[t], in.ref_logprobs[t]);
      terms.kl_loss += weights[t] * kl.value;
      // A coefficient of 0 keeps the KL as a mere figure: not even its infinity may reach the gradient.
      if (options.kl_loss_coef != 0.0) gradient[t] += weights[t] * options.kl_loss_coef * kl.slope;
    }
    if (!in.rollout_logprobs.empty()) {
      terms.train_rollout_logprob_abs_diff += weights[t] * std::abs(in.old_logprobs[t] - in.rollout_logprobs[t]);
    }
  }
}

void check_input(const PolicyLossOptions& options, const PolicyLossInput& in) {
  const size_t tokens = in.logprobs.size();
  const size_t policy_tokens = options.type == PolicyLossType::sft ? 0 : tokens;
  VIME_CHECK(
      in.mask.size() == tokens && in.old_logprobs.size() == policy_tokens && in.advantages.size() == policy_tokens,
      "mask, old log-probs and advantages must have one entry per token (the last two none for sft)");
  VIME_CHECK(in.rollout_logprobs.empty() || in.old_logprobs.size() == tokens, "what the engine's are compared with");
  VIME_CHECK(in.ref_logprobs.empty() || in.ref_logprobs.size() == tokens, "one reference log-prob per token");
  VIME_CHECK(in.rollout_logprobs.empty() || in.rollout_logprobs.size() == tokens, "one engine log-prob per token");
  VIME_CHECK(options.kl_loss_coef == 0.0 || tokens == 0 || !in.ref_logprobs.empty(),
             "a KL term needs reference log-probs");
  VIME_CHECK(options.eps_clip >= 0.0 && options.eps_clip_high >= 0.0, "clip ranges are not negative");
  VIME_CHECK(!options.eps_clip_c || *options.eps_clip_c > 1.0, "the dual clip must be above 1");
}

}  // namespace

PolicyLossType policy_loss_type(const std::string& advantage_estimator) {
  if (advantage_estimator == "grpo" || advantage_estimator == "ppo") return PolicyLossType::ppo;
  if (advantage_estimator == "gspo") return PolicyLossType::gspo;
  if (advantage_estimator == "cispo") return PolicyLossType::cispo;
  const std::vector<std::string> names = {"grpo", "ppo", "gspo", "cispo"};
  const std::string near = nearest_name(advantage_estimator, names);
  throw Error(ErrorKind::refused,
              "advantage estimator: expected one of " + join(names, ", ") + ", found \"" + advantage_estimator + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

PolicyLoss policy_loss(const PolicyLossOptions& options, const PolicyLossInput& input) {
  check_input(options, input);
  const std::vector<double> weights = token_weights(options.reducer, input.mask, input.lengths, input.denominator);
  PolicyLoss result;
  result.gradient.assign(input.logprobs.size(), 0.0);
  result.samples.reserve(input.lengths.size());
  SampleView view;
  for (int64_t length : input.lengths) {
    view = {view.end, view.end + static_cast<size_t>(length)};
    LossTerms terms;
    if (options.type == PolicyLossType::sft) {
      add_supervised(input, view, weights, terms, result.gradient);
    } else if (options.type == PolicyLossType::gspo) {
      add_sequence_policy(options, input, view, weights, terms, result.gradient);
    } else {
      add_token_policy(options, input, view, weights, terms, result.gradient);
    }
    add_comparisons(options, input, view, weights, terms, result.gradient);
    terms.loss = terms.pg_loss + (options.kl_loss_coef == 0.0 ? 0.0 : options.kl_loss_coef * terms.kl_loss);
    result.loss += terms.loss;
    result.samples.push_back(terms);
  }
  return result;
}

LossTerms sum_terms(std::span<const LossTerms> terms) {
  LossTerms sum;
  for (const LossTerms& t : terms) {
    sum.loss += t.loss;
    sum.pg_loss += t.pg_loss;
    sum.kl_loss += t.kl_loss;
    sum.pg_clipfrac += t.pg_clipfrac;
    sum.ppo_kl += t.ppo_kl;
    sum.ppo_kl_abs += t.ppo_kl_abs;
    sum.train_rollout_logprob_abs_diff += t.train_rollout_logprob_abs_diff;
  }
  return sum;
}

}  // namespace vime::algo
