// Forward and backward over the micro-batches of one optimizer step: packed tokens -> log-probs of the response tokens
// -> policy loss -> gradients, on one rank of a layout. One thread; collective over the ranks of a replica (its
// tensor-, context- and pipeline-parallel ranks), which all run the same micro-batches.
#pragma once

#include <torch/types.h>

#include <span>
#include <vector>

#include "algo/policy_loss.hpp"
#include "model/decoder.hpp"
#include "trainer/packing.hpp"
#include "trainer/pipeline.hpp"

namespace vime::trainer {

struct PolicyOptions {
  algo::PolicyLossOptions loss;
  double temperature = 1.0;   // of the rollout: log-probs are of softmax(logits / temperature)
  double entropy_coef = 0.0;  // weight of the entropy bonus
};

// Log-probs of the batch's response tokens that are computed before its first step, each [response tokens] or empty.
struct FixedLogprobs {
  std::vector<double> old;        // of the weights that generated the samples; empty for sft
  std::vector<double> reference;  // of the reference model; empty without one
};

struct PolicyFigures {
  algo::LossTerms terms;  // these micro-batches' share of the step's figures
  double entropy = 0.0;   // likewise: weighted mean entropy
  double logprob = 0.0;   // likewise: weighted mean of the old log-probs (sft: of the present ones)
};

class PolicyStep {
 public:
  // cp: the context-parallel ranks.
  PolicyStep(PolicyOptions options, model::CollectivesPtr cp = model::single_rank(), Pipeline pipeline = {});
  virtual ~PolicyStep() = default;

  // Log-probs (natural, float64) of the response tokens under the present weights, no gradient: [response tokens of the
  // batch], NaN where a token is in none of the micro-batches. The same on all ranks of the last stage; nothing but NaN
  // on the others.
  std::vector<double> logprobs(const model::Decoder& decoder, const BatchView& view,
                               std::span<const rollout::MicroBatch> micro_batches) const;

  // Adds the gradients to the parameters' gradients. denominator: of the whole step (algo::loss_denominator). Figures
  // are the same on all ranks of the last stage and zero on the others.
  PolicyFigures backward(const model::Decoder& decoder, const BatchView& view,
                         std::span<const rollout::MicroBatch> micro_batches, const FixedLogprobs& fixed,
                         double denominator) const;

  const PolicyOptions& options() const { return options_; }

 protected:
  // Of values for all response tokens of a micro-batch, those that this rank predicts.
  virtual std::vector<double> own(const std::vector<double>& values, const std::vector<int64_t>& places) const;

 private:
  struct Flight;
  StageWork forward_work(const model::Decoder& decoder, std::vector<Flight>& flights) const;
  // Log-probs and entropies of all response tokens of a micro-batch: the context-parallel ranks' own put together.
  torch::Tensor whole(const torch::Tensor& logprobs, const torch::Tensor& entropies, const Packing& packing) const;
  void take_loss(Flight& flight, const BatchView& view, const rollout::MicroBatch& samples, const FixedLogprobs& fixed,
                 double denominator, PolicyFigures& figures) const;

  PolicyOptions options_;
  model::CollectivesPtr cp_;
  Pipeline pipeline_;
};

}  // namespace vime::trainer
