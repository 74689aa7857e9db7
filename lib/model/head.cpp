#include "model/head.hpp"

#include "model/head_chunks.hpp"

namespace vime::model {

TokenLogprobs head_logprobs(const Decoder& decoder, const torch::Tensor& hidden, const torch::Tensor& selected,
                            const torch::Tensor& targets, double temperature, Entropy entropy) {
  if (!decoder.device().is_cuda()) {
    return token_logprobs(decoder.local_logits(hidden, selected), targets, temperature, entropy, decoder.vocab_begin(),
                          decoder.tensor_parallel());
  }
  HeadChunks head;
  head.rows = decoder.head_rows(hidden, selected);
  head.weight = decoder.head();
  head.targets = targets;
  head.temperature = temperature;
  head.vocab_begin = decoder.vocab_begin();
  head.rows_per_product = decoder.rows_per_product();
  head.ranks = decoder.tensor_parallel();
  return chunked_logprobs(head, entropy);
}

}  // namespace vime::model
