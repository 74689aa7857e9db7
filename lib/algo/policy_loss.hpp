// The policy loss of one micro-batch and its gradient by the log-probs, so that the trainer only has to do
// `logprobs.backward(gradient)`. Pure functions in double; any thread. Sources: PPO (Schulman et al. 2017, equation 7),
// dual clip (Ye et al. 2020, equation 5), GSPO (Zheng et al. 2025: one ratio per sequence), CISPO (MiniMax-M1, 2025);
// details as in slime 624b824a.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algo/kl.hpp"
#include "algo/reduce.hpp"

namespace vime::algo {

enum class PolicyLossType {
  ppo,    // ratio per token: also GRPO's
  gspo,   // ratio of the sequence: exp of the mean log-ratio over its masked tokens
  cispo,  // -(clipped ratio, no gradient) * advantage * logprob
  sft,    // -logprob: supervised; advantages and old log-probs play no part
};

// "grpo" and "ppo" -> ppo, "gspo", "cispo": values of algorithm.advantage_estimator. Error{refused} with the nearest
// name.
PolicyLossType policy_loss_type(const std::string& advantage_estimator);

struct PolicyLossOptions {
  PolicyLossType type = PolicyLossType::ppo;
  double eps_clip = 0.2;       // ratios below 1 - eps_clip are clipped
  double eps_clip_high = 0.2;  // ratios above 1 + eps_clip_high are clipped
  std::optional<double>
      eps_clip_c;  // dual clip: for a negative advantage the loss is at most -eps_clip_c * advantage; > 1
  Reducer reducer = Reducer::sample_mean;
  KlType kl_type = KlType::k1;
  double kl_loss_coef = 0.0;  // weight of the KL term against ref_logprobs
};

// Responses of the micro-batch one after another; all spans but lengths are [tokens]. A response may be empty.
// What stands where the mask is 0 is never read into a result, NaN included.
struct PolicyLossInput {
  std::span<const double> logprobs;
  std::span<const double> old_logprobs;      // empty for sft
  std::span<const double> ref_logprobs;      // empty: no KL term (then kl_loss_coef must be 0)
  std::span<const double> rollout_logprobs;  // the engine's; empty: no comparison
  std::span<const double> advantages;        // empty for sft
  std::span<const uint8_t> mask;
  std::span<const int64_t> lengths;  // [samples]
  double denominator = 1.0;          // of the whole step (loss_denominator), not of this micro-batch
};

// What one sample adds to the step's figures, already weighted: the figure of a step is the sum over all its samples.
struct LossTerms {
  double loss = 0.0;  // pg_loss + kl_loss_coef * kl_loss
  double pg_loss = 0.0;
  double kl_loss = 0.0;
  double pg_clipfrac = 0.0;  // share of tokens for which clipping decided (CISPO: whose ratio was clipped)
  double ppo_kl = 0.0;       // old - new log-prob (GSPO: its mean over the sequence)
  double ppo_kl_abs = 0.0;   // its magnitude: the two-sided check, since signed terms can cancel
  double train_rollout_logprob_abs_diff = 0.0;  // |old - engine's log-prob|
};

struct PolicyLoss {
  double loss = 0.0;             // this micro-batch's share of the step's loss
  std::vector<double> gradient;  // [tokens]: d loss / d logprob
  std::vector<LossTerms>
      samples;  // [samples]; add them up in the order of the sample index for figures that do not depend on the layout
};

// VIME_CHECKs that the sizes fit. A non-finite value at a masked-in token shows in loss and gradient; it is not hidden
// here.
PolicyLoss policy_loss(const PolicyLossOptions& options, const PolicyLossInput& input);

LossTerms sum_terms(std::span<const LossTerms> terms);

}  // namespace vime::algo
