#include "trainer/policy_step.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "algo/reduce.hpp"
#include "model/head.hpp"

namespace vime::trainer {

// A micro-batch between its forward and its backward pass.
struct PolicyStep::Flight {
  Packing packing;
  torch::Tensor input;   // from the stage before
  torch::Tensor output;  // to the next stage, or hidden states after the final norm
  model::TokenLogprobs current;
  std::vector<torch::Tensor> roots, gradients;  // what the backward pass begins with
};

namespace {

std::vector<double> to_doubles(const torch::Tensor& tensor) {
  const torch::Tensor wide = tensor.detach().to(torch::kCPU, torch::kFloat64).contiguous();
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

// Those that have something to predict. The batch alone decides, so that all ranks of a replica agree.
std::vector<rollout::MicroBatch> with_responses(const BatchView& view,
                                                std::span<const rollout::MicroBatch> micro_batches) {
  std::vector<rollout::MicroBatch> kept;
  for (const rollout::MicroBatch& samples : micro_batches) {
    const bool any = std::any_of(samples.begin(), samples.end(), [&](int64_t sample) {
      return view.batch.response_lengths[static_cast<size_t>(sample)] > 0;
    });
    if (any) kept.push_back(samples);
  }
  return kept;
}

}  // namespace

PolicyStep::PolicyStep(PolicyOptions options, model::CollectivesPtr cp, Pipeline pipeline)
    : options_(std::move(options)), cp_(std::move(cp)), pipeline_(std::move(pipeline)) {}

StageWork PolicyStep::forward_work(const model::Decoder& decoder, std::vector<Flight>& flights) const {
  StageWork work;
  work.shape = [&](size_t i) {
    return std::vector<int64_t>{flights[i].packing.rows() / decoder.tensor_parallel()->size(),
                                decoder.config().hidden_size};
  };
  work.options = torch::TensorOptions().dtype(decoder.dtype()).device(decoder.device());
  work.forward = [&](size_t i, const torch::Tensor& input) {
    Flight& flight = flights[i];
    flight.input = input;
    decoder.check_tokens(flight.packing.ids, flight.packing.positions);
    if (torch::GradMode::is_enabled() && input.defined()) flight.input.set_requires_grad(true);
    const torch::Tensor x = pipeline_.first() ? decoder.embed(flight.packing.ids.to(decoder.device())) : flight.input;
    const model::Decoder::Residual rows =
        decoder.run_layers(x, flight.packing.positions.to(decoder.device()), flight.packing.attention);
    flight.output = pipeline_.last() ? decoder.final_norm(rows) : rows.whole();
    return flight.output;
  };
  return work;
}

torch::Tensor PolicyStep::whole(const torch::Tensor& logprobs, const torch::Tensor& entropies,
                                const Packing& packing) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor values = logprobs.detach().unsqueeze(0);
  if (entropies.defined()) values = torch::stack({logprobs.detach(), entropies.detach()});
  values = values.to(torch::kCPU, torch::kFloat64);
  if (cp_->size() == 1) return values;
  torch::Tensor all = torch::zeros({values.size(0), packing.response_tokens}, torch::kFloat64);
  all.index_copy_(1, torch::tensor(packing.places, torch::kInt64), values);
  // Every token is on one rank and zero on the others, so that the sum is exact.
  return model::sum_in_order(cp_->all_gather(all));
}

std::vector<double> PolicyStep::logprobs(const model::Decoder& decoder, const BatchView& view,
                                         std::span<const rollout::MicroBatch> micro_batches) const {
  const torch::NoGradGuard no_grad;
  const std::vector<rollout::MicroBatch> batches = with_responses(view, micro_batches);
  std::vector<Flight> flights(batches.size());
  const int tp = decoder.tensor_parallel()->size();
  for (size_t i = 0; i < batches.size(); ++i) {
    flights[i].packing =
        pack(view, batches[i], cp_, tp, decoder.device(), decoder.dtype(), decoder.rows_per_product() > 0);
  }
  std::vector<double> logprobs(static_cast<size_t>(view.response_offsets.back()),
                               std::numeric_limits<double>::quiet_NaN());
  StageWork work = forward_work(decoder, flights);
  const auto run_stage = work.forward;
  work.forward = [&](size_t i, const torch::Tensor& input) {
    torch::Tensor output = run_stage(i, input);
    const Packing& packing = flights[i].packing;
    if (pipeline_.last()) {
      const model::TokenLogprobs own = model::head_logprobs(decoder, output, packing.selected, packing.targets,
                                                            options_.temperature, model::Entropy::none);
      const std::vector<double> values = to_doubles(whole(own.logprobs, {}, packing)[0]);
      auto from = values.begin();
      for (const int64_t sample : batches[i]) {
        const int64_t count = view.batch.response_lengths[static_cast<size_t>(sample)];
        std::copy_n(from, count, logprobs.begin() + view.response_offsets[static_cast<size_t>(sample)]);
        from += count;
      }
    }
    flights[i] = {};
    return output;
  };
  pipeline_.forward_only(batches.size(), work);
  return logprobs;
}

std::vector<double> PolicyStep::own(const std::vector<double>& values, const std::vector<int64_t>& places) const {
  std::vector<double> mine;
  for (const int64_t place : places) mine.push_back(values[static_cast<size_t>(place)]);
  return mine;
}

// The loss is taken over whole responses on every rank alike, so that reductions over a sequence are right wherever its
// tokens are; each rank then goes on with the gradient of the tokens that it predicts.
void PolicyStep::take_loss(Flight& flight, const BatchView& view, const rollout::MicroBatch& samples,
                           const FixedLogprobs& fixed, double denominator, PolicyFigures& figures) const {
  const torch::Tensor known = whole(flight.current.logprobs, flight.current.entropy, flight.packing);
  const std::vector<double> logprobs = to_doubles(known[0]);
  const std::vector<uint8_t> mask = gather(view, samples, view.batch.loss_mask);
  std::vector<double> old, reference, engine, advantages;
  if (options_.loss.type != algo::PolicyLossType::sft) {
    std::vector<double> of_samples;
    for (const int64_t sample : samples) of_samples.push_back(view.batch.advantages[static_cast<size_t>(sample)]);
    advantages = algo::expand_to_tokens(of_samples, flight.packing.response_lengths);
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
  input.lengths = flight.packing.response_lengths;
  input.denominator = denominator;
  const algo::PolicyLoss loss = algo::policy_loss(options_.loss, input);
  const std::vector<double> weights =
      algo::token_weights(options_.loss.reducer, mask, flight.packing.response_lengths, denominator);

  const auto float_tensor = [&](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat64).to(flight.current.logprobs.device(), torch::kFloat32);
  };
  const std::vector<int64_t>& places = flight.packing.places;
  flight.roots = {flight.current.logprobs};
  flight.gradients = {float_tensor(own(loss.gradient, places))};
  if (options_.entropy_coef != 0.0) {
    flight.roots.push_back(flight.current.entropy);
    flight.gradients.push_back(float_tensor(own(weights, places)).mul_(-options_.entropy_coef));
  }

  const double entropy = algo::weighted_sum(weights, to_doubles(known[1]));
  algo::LossTerms terms = algo::sum_terms(loss.samples);
  terms.loss -= options_.entropy_coef * entropy;
  figures.terms = algo::sum_terms(std::vector<algo::LossTerms>{figures.terms, terms});
  figures.entropy += entropy;
  figures.logprob += algo::weighted_sum(weights, old.empty() ? logprobs : old);
}

PolicyFigures PolicyStep::backward(const model::Decoder& decoder, const BatchView& view,
                                   std::span<const rollout::MicroBatch> micro_batches, const FixedLogprobs& fixed,
                                   double denominator) const {
  const std::vector<rollout::MicroBatch> batches = with_responses(view, micro_batches);
  std::vector<Flight> flights(batches.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    flights[i].packing = pack(view, batches[i], cp_, decoder.tensor_parallel()->size(), decoder.device(),
                              decoder.dtype(), decoder.rows_per_product() > 0);
  }
  PolicyFigures figures;
  StageWork work = forward_work(decoder, flights);
  const auto run_stage = work.forward;
  work.forward = [&](size_t i, const torch::Tensor& input) {
    const torch::Tensor output = run_stage(i, input);
    Flight& flight = flights[i];
    if (!pipeline_.last()) return output;
    const bool bonus = options_.entropy_coef != 0.0;
    flight.current =
        model::head_logprobs(decoder, output, flight.packing.selected, flight.packing.targets, options_.temperature,
                             bonus ? model::Entropy::differentiable : model::Entropy::figure);
    take_loss(flight, view, batches[i], fixed, denominator, figures);
    return output;
  };
  work.backward = [&](size_t i, const torch::Tensor& gradient) {
    Flight& flight = flights[i];
    if (!pipeline_.last()) {
      flight.roots = {flight.output};
      flight.gradients = {gradient};
    }
    torch::autograd::backward(flight.roots, flight.gradients);
    const torch::Tensor by_input = pipeline_.first() ? torch::Tensor() : flight.input.grad();
    flight = {};
    return by_input;
  };
  pipeline_.forward_backward(batches.size(), work);
  return figures;
}

}  // namespace vime::trainer
