// Log-probs and entropies of tokens over a vocabulary whose parts lie on several ranks.
#pragma once

#include <torch/types.h>

#include "model/collectives.hpp"

namespace vime::model {

// log softmax(logits / temperature)[target] and, when asked for, the entropy of softmax(logits / temperature); float32
// [tokens]. logits: [tokens, part], the part of the vocabulary from vocab_begin on that this rank holds; every rank
// gets the same results. Differentiable, collective over `ranks` in the forward direction only.
struct TokenLogprobs {
  torch::Tensor logprobs;
  torch::Tensor entropy;  // undefined with Entropy::none; has a gradient with Entropy::differentiable
};
enum class Entropy { none, figure, differentiable };
TokenLogprobs token_logprobs(const torch::Tensor& logits, const torch::Tensor& targets, double temperature,
                             Entropy entropy, int64_t vocab_begin, const CollectivesPtr& ranks);

}  // namespace vime::model
