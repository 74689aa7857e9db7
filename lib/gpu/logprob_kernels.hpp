// Log-probs and entropies of a chunk of rows of logits in one pass over them, and the gradient written over the logits,
// so that nothing of the vocabulary's width exists besides the chunk itself. The vocabulary may lie in parts on several
// ranks. Nothing blocks: kernels are queued on `stream`. Results are the same bits every time, and a row's do not
// depend on the other rows. With l = logit / temperature: p = softmax(l), log-prob = l[target] - log sum exp l,
// entropy = -sum p log p.
#pragma once

#include <cstdint>

#include "gpu/element.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

// A chunk of logits on the device: row i begins `stride` elements after row i - 1.
struct Logits {
  void* values = nullptr;
  Element element = Element::bf16;
  int64_t rows = 0;
  int64_t columns = 0;               // this rank's part of the vocabulary; may be 0
  int64_t stride = 0;                // >= columns
  const int64_t* targets = nullptr;  // [rows]: token ids of the whole vocabulary
  int64_t vocab_begin = 0;           // token id of column 0
  float temperature = 1.0f;
};

// What a rank says of its part of each row, float32 [4, rows]: the largest l; sum of exp(l - largest); sum of
// exp(l - largest) * (l - largest); l of the target, 0 where the target is another rank's. One rank's parts can be
// gathered over ranks in one piece.
constexpr int64_t kLogprobParts = 4;
void logprob_parts(const Logits& logits, float* parts, Stream stream);

// parts: [ranks, 4, rows]. Outputs float32 [rows] each.
void combine_logprob_parts(const float* parts, int64_t ranks, int64_t rows, float* logprob, float* entropy,
                           float* log_sum, Stream stream);

// Overwrites the logits with the gradient with respect to them (not to l), in their own element type:
// (d_logprob * (one-hot - p) - d_entropy * p * (log p + entropy)) / temperature. All float32 [rows]; d_entropy may be
// null, entropy then too.
void logprob_backward(const Logits& logits, const float* log_sum, const float* entropy, const float* d_logprob,
                      const float* d_entropy, Stream stream);

}  // namespace vime::gpu
