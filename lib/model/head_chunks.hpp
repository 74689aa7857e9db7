// Log-probs by way of logits of a chunk of rows at a time, on a GPU.
#pragma once

#include <torch/types.h>

#include "model/logprobs.hpp"

namespace vime::model {

struct HeadChunks {
  torch::Tensor rows;     // [selected, hidden]
  torch::Tensor weight;   // [part, hidden]; its gradient goes to its main gradient where it has one
  torch::Tensor targets;  // int64 [selected]
  double temperature = 1.0;
  int64_t vocab_begin = 0;
  int64_t rows_per_product = 0;  // linear.hpp
  CollectivesPtr ranks;
};

// Differentiable; collective over the ranks in the forward direction only.
TokenLogprobs chunked_logprobs(const HeadChunks& head, Entropy entropy);

}  // namespace vime::model
