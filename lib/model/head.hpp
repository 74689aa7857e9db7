// From hidden states to log-probs. On a GPU in chunks of rows, forward and backward: logits of the whole micro-batch
// never exist, those of a chunk are of the weights' type, are computed again in the backward pass and are overwritten
// by their gradient.
#pragma once

#include <torch/types.h>

#include "model/decoder.hpp"
#include "model/logprobs.hpp"

namespace vime::model {

constexpr int64_t kHeadChunk = 4096;  // rows

// As token_logprobs (logprobs.hpp) of the selected rows' logits. hidden: after the final norm; selected: indices into
// all rows; targets: [selected]; both on the decoder's device.
TokenLogprobs head_logprobs(const Decoder& decoder, const torch::Tensor& hidden, const torch::Tensor& selected,
                            const torch::Tensor& targets, double temperature, Entropy entropy);

}  // namespace vime::model
