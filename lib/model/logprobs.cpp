#include "model/logprobs.hpp"

#include <torch/autograd.h>
#include <limits>

#include "base/error.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

torch::Tensor largest_of_ranks(const torch::Tensor& logits, const CollectivesPtr& ranks) {
  torch::Tensor mine = logits.size(1) == 0
                           ? torch::full({logits.size(0)}, -std::numeric_limits<float>::infinity(), logits.options())
                           : std::get<0>(logits.max(1));
  for (const torch::Tensor& theirs : ranks->all_gather(mine)) mine = torch::maximum(mine, theirs);
  return mine;
}

// With p = softmax over the whole vocabulary: d logprob[t] / d logit[j] = (j == t) - p[j], and for the entropy
// H = -sum p log p it is -p[j] (log p[j] + H).
struct Logprobs : torch::autograd::Function<Logprobs> {
  static tensor_list forward(AutogradContext* context, const torch::Tensor& logits, const torch::Tensor& targets,
                             int64_t vocab_begin, const CollectivesPtr& ranks, bool with_entropy) {
    context->set_materialize_grads(false);  // an entropy that is only a figure costs the backward pass nothing
    const torch::Tensor shifted = logits - largest_of_ranks(logits, ranks).unsqueeze(1);
    const torch::Tensor local = targets - vocab_begin;
    const torch::Tensor foreign = (local < 0).logical_or_(local >= logits.size(1));
    const torch::Tensor columns = local.masked_fill(foreign, 0);
    const torch::Tensor exponentials = shifted.exp();
    std::vector<torch::Tensor> sums = {exponentials.sum(1)};
    sums.push_back(logits.size(1) == 0 ? torch::zeros_like(sums[0])
                                       : shifted.gather(1, columns.unsqueeze(1)).squeeze(1).masked_fill(foreign, 0));
    if (with_entropy) sums.push_back((exponentials * shifted).sum(1));
    const torch::Tensor whole = sum_in_order(ranks->all_gather(torch::stack(sums)));
    const torch::Tensor log_sum = whole[0].log();
    const torch::Tensor entropy = with_entropy ? log_sum - whole[2] / whole[0] : torch::Tensor();
    // log p, from which the backward pass has everything.
    context->save_for_backward({shifted.sub(log_sum.unsqueeze(1)), columns, foreign, entropy});
    if (!with_entropy) return {whole[1] - log_sum};
    return {whole[1] - log_sum, entropy};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &log_p = saved[0], &columns = saved[1], &foreign = saved[2], &entropy = saved[3];
    const torch::Tensor p = log_p.exp();
    torch::Tensor gradient = torch::zeros_like(p);
    if (gradients[0].defined()) {
      gradient = p * gradients[0].neg().unsqueeze(1);
      if (p.size(1) > 0) {
        gradient.scatter_add_(1, columns.unsqueeze(1), gradients[0].masked_fill(foreign, 0).unsqueeze(1));
      }
    }
    if (gradients.size() > 1 && gradients[1].defined()) {
      gradient = gradient - p * (log_p + entropy.unsqueeze(1)) * gradients[1].unsqueeze(1);
    }
    return {gradient, torch::Tensor(), torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

TokenLogprobs token_logprobs(const torch::Tensor& logits, const torch::Tensor& targets, double temperature,
                             Entropy entropy, int64_t vocab_begin, const CollectivesPtr& ranks) {
  VIME_CHECK(temperature > 0, "token_logprobs needs a temperature above 0, found " + std::to_string(temperature));
  VIME_CHECK(logits.dim() == 2 && targets.dim() == 1 && logits.size(0) == targets.size(0),
             "token_logprobs needs logits [tokens, part] and targets [tokens]");
  torch::Tensor wide = logits.to(torch::kFloat32);
  if (temperature != 1.0) wide = wide / temperature;
  const tensor_list found = Logprobs::apply(wide, targets, vocab_begin, ranks, entropy != Entropy::none);
  TokenLogprobs result;
  result.logprobs = found[0];
  if (entropy == Entropy::figure) result.entropy = found[1].detach();
  if (entropy == Entropy::differentiable) result.entropy = found[1];
  return result;
}

}  // namespace vime::model
