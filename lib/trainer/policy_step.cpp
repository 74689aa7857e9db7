#include "trainer/policy_step.hpp"

#include <algorithm>

#include "algo/reduce.hpp"

namespace vime::trainer {
namespace {

// What the decoder gets for a micro-batch, and which of its rows predict response tokens.
struct Packed {
  torch::Tensor ids;        // int64 [tokens]
  torch::Tensor positions;  // int64 [tokens]
  torch::Tensor rows;       // int64 [response tokens]: the row before each response token predicts it
  torch::Tensor targets;    // int64 [response tokens]
  std::vector<int64_t> lengths;
  std::vector<int64_t> response_lengths;
};

torch::Tensor int64_tensor(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kInt64);
}

Packed pack(const BatchView& view, const rollout::MicroBatch& samples) {
  std::vector<int64_t> ids, positions, rows, targets;
  Packed packed;
  for (const int64_t sample : samples) {
    const auto at = static_cast<size_t>(sample);
    const int64_t length = view.batch.lengths[at];
    const int64_t response = view.batch.response_lengths[at];
    const auto first_row = static_cast<int64_t>(ids.size());
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(view.batch.tokens[static_cast<size_t>(view.token_offsets[at] + i)]);
      positions.push_back(i);
    }
    for (int64_t i = length - response; i < length; ++i) {
      rows.push_back(first_row + i - 1);
      targets.push_back(ids[static_cast<size_t>(first_row + i)]);
    }
    packed.lengths.push_back(length);
    packed.response_lengths.push_back(response);
  }
  packed.ids = int64_tensor(ids);
  packed.positions = int64_tensor(positions);
  packed.rows = int64_tensor(rows);
  packed.targets = int64_tensor(targets);
  return packed;
}

torch::Tensor response_logits(const model::Decoder& decoder, const Packed& packed) {
  const torch::Tensor hidden =
      decoder.hidden_states(packed.ids, packed.positions, model::packed_attention(packed.lengths));
  return decoder.logits(hidden.index_select(0, packed.rows));
}

std::vector<double> to_doubles(const torch::Tensor& tensor) {
  const torch::Tensor wide = tensor.detach().to(torch::kFloat64).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

// The response tokens of a micro-batch's samples out of an array over the whole batch.
template <typename T>
std::vector<T> gather(const BatchView& view, const rollout::MicroBatch& samples, const std::vector<T>& whole) {
  std::vector<T> part;
  for (const int64_t sample : samples) {
    const auto at = static_cast<size_t>(sample);
    part.insert(part.end(), whole.begin() + view.response_offsets[at], whole.begin() + view.response_offsets[at + 1]);
  }
  return part;
}

}  // namespace

BatchView::BatchView(const rollout::TrainBatch& of)
    : batch(of), token_offsets(rollout::offsets(of.lengths)), response_offsets(rollout::offsets(of.response_lengths)) {}

std::vector<double> response_logprobs(const model::Decoder& decoder, const BatchView& view,
                                      const rollout::MicroBatch& samples, double temperature) {
  const torch::NoGradGuard no_grad;
  const Packed packed = pack(view, samples);
  if (packed.rows.numel() == 0) return {};
  return to_doubles(
      model::token_logprobs(response_logits(decoder, packed), packed.targets, temperature, false).logprobs);
}

MicroBatchResult backward(const model::Decoder& decoder, const BatchView& view, const rollout::MicroBatch& samples,
                          const FixedLogprobs& fixed, double denominator, const PolicyOptions& options) {
  const Packed packed = pack(view, samples);
  if (packed.rows.numel() == 0) return {};
  const torch::Tensor logits = response_logits(decoder, packed);
  const bool bonus = options.entropy_coef != 0.0;
  model::TokenLogprobs current = model::token_logprobs(logits, packed.targets, options.temperature, bonus);
  if (!bonus) {
    const torch::NoGradGuard no_grad;  // a figure only: no graph is kept for it
    current.entropy = model::token_logprobs(logits.detach(), packed.targets, options.temperature, true).entropy;
  }

  const std::vector<double> logprobs = to_doubles(current.logprobs);
  const std::vector<uint8_t> mask = gather(view, samples, view.batch.loss_mask);
  std::vector<double> old, reference, engine, advantages;
  if (options.loss.type != algo::PolicyLossType::sft) {
    std::vector<double> of_samples;
    for (const int64_t sample : samples) of_samples.push_back(view.batch.advantages[static_cast<size_t>(sample)]);
    advantages = algo::expand_to_tokens(of_samples, packed.response_lengths);
    old = gather(view, samples, fixed.old);
    engine = gather(view, samples, view.batch.rollout_logprobs);
  }
  if (!fixed.reference.empty()) reference = gather(view, samples, fixed.reference);

  algo::PolicyLossInput input;
  input.logprobs = logprobs;
  input.old_logprobs = old;
  input.ref_logprobs = reference;
  input.rollout_logprobs = engine;
  input.advantages = advantages;
  input.mask = mask;
  input.lengths = packed.response_lengths;
  input.denominator = denominator;
  const algo::PolicyLoss loss = algo::policy_loss(options.loss, input);
  const std::vector<double> weights =
      algo::token_weights(options.loss.reducer, mask, packed.response_lengths, denominator);

  std::vector<torch::Tensor> roots = {current.logprobs};
  std::vector<torch::Tensor> gradients = {torch::tensor(loss.gradient, torch::kFloat64).to(torch::kFloat32)};
  if (bonus) {
    roots.push_back(current.entropy);
    gradients.push_back(torch::tensor(weights, torch::kFloat64).mul_(-options.entropy_coef).to(torch::kFloat32));
  }
  torch::autograd::backward(roots, gradients);

  MicroBatchResult result;
  result.terms = algo::sum_terms(loss.samples);
  result.entropy = algo::weighted_sum(weights, to_doubles(current.entropy));
  result.logprob = algo::weighted_sum(weights, old.empty() ? logprobs : old);
  result.terms.loss -= options.entropy_coef * result.entropy;
  return result;
}

}  // namespace vime::trainer
