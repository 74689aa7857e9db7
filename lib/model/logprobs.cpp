#include "base/error.hpp"
#include "model/decoder.hpp"

namespace vime::model {

TokenLogprobs token_logprobs(const torch::Tensor& logits, const torch::Tensor& targets, double temperature,
                             bool with_entropy) {
  VIME_CHECK(temperature > 0, "token_logprobs needs a temperature above 0, found " + std::to_string(temperature));
  VIME_CHECK(logits.dim() == 2 && targets.dim() == 1 && logits.size(0) == targets.size(0),
             "token_logprobs needs logits [tokens, vocab] and targets [tokens]");
  torch::Tensor wide = logits.to(torch::kFloat32);
  if (temperature != 1.0) wide = wide / temperature;
  const torch::Tensor logprobs = torch::log_softmax(wide, -1);
  TokenLogprobs result;
  result.logprobs = logprobs.gather(1, targets.unsqueeze(1)).squeeze(1);
  if (with_entropy) result.entropy = -(logprobs.exp() * logprobs).sum(-1);
  return result;
}

}  // namespace vime::model
