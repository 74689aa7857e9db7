// Forward and backward over one micro-batch: packed tokens -> log-probs of the response tokens -> policy loss ->
// gradients. Sequences lie one behind the other, without padding. One thread.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "algo/policy_loss.hpp"
#include "model/decoder.hpp"
#include "rollout/schedule.hpp"
#include "rollout/train_batch.hpp"

namespace vime::trainer {

struct PolicyOptions {
  algo::PolicyLossOptions loss;
  double temperature = 1.0;   // of the rollout: log-probs are of softmax(logits / temperature)
  double entropy_coef = 0.0;  // weight of the entropy bonus
};

// A batch, and where each sample's tokens and responses begin in it.
struct BatchView {
  const rollout::TrainBatch& batch;
  std::vector<int64_t> token_offsets;     // [samples + 1]
  std::vector<int64_t> response_offsets;  // [samples + 1]

  explicit BatchView(const rollout::TrainBatch& of);
};

// Log-probs of the batch's response tokens that are computed before its first step, each [response tokens] or empty.
struct FixedLogprobs {
  std::vector<double> old;        // of the weights that generated the samples; empty for sft
  std::vector<double> reference;  // of the reference model; empty without one
};

// Log-probs (natural, float64) of the micro-batch's response tokens under the present weights, sample after sample; no
// gradient.
std::vector<double> response_logprobs(const model::Decoder& decoder, const BatchView& view,
                                      const rollout::MicroBatch& samples, double temperature);

struct MicroBatchResult {
  algo::LossTerms terms;  // this micro-batch's share of the step's figures
  double entropy = 0.0;   // likewise: weighted mean entropy
  double logprob = 0.0;   // likewise: weighted mean of the old log-probs (sft: of the present ones)
};

// Adds the micro-batch's gradient to the parameters' gradients. denominator: of the whole step
// (algo::loss_denominator).
MicroBatchResult backward(const model::Decoder& decoder, const BatchView& view, const rollout::MicroBatch& samples,
                          const FixedLogprobs& fixed, double denominator, const PolicyOptions& options);

}  // namespace vime::trainer
