// Tokens drawn or looked up from rows of logits, many rows at once, each with its own settings. Draws and log-probs are
// those of executor/sampling.hpp on the same logits, in double precision: a draw can differ only where the random
// number falls within rounding (some 1e-15) of the border between two tokens, a top_p cut likewise. Given to a stream;
// no call allocates. Only in builds with CUDA.
#pragma once

#include <cstdint>

#include "gpu/stream.hpp"

namespace vime::gpu {

enum class LogitType { bf16, f32 };

struct SampleRow {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = -1;        // below 1: all
  int32_t forced = -1;       // >= 0: looked up, and nothing else counts
  int32_t banned_begin = 0;  // into the list of banned ids
  int32_t banned_count = 0;
  int32_t padding = 0;
  double uniform = 0;  // in [0, 1)
};

struct DrawnRow {
  int32_t token = -1;  // -1: every token is banned
  float logprob = 0;
  int32_t rank = 0;  // of a forced token, as are the next two
  int32_t top_token = 0;
  float top_logprob = 0;
  int32_t bad_token = -1;  // the lowest id whose logit is not finite; then nothing else counts
  float bad_logit = 0;
  int32_t padding = 0;
};

// logits: [rows, vocab]; samples and drawn: [rows]; all in the GPU's memory. raw_logprobs: log-probs of the logits as
// they are, not of the distribution that was drawn from. workspace: draw_workspace_bytes().
void draw_rows(const void* logits, LogitType type, int64_t rows, int64_t vocab, const SampleRow* samples,
               const int32_t* banned, bool raw_logprobs, void* workspace, DrawnRow* drawn, Stream stream);
uint64_t draw_workspace_bytes(int64_t rows, int64_t vocab);

}  // namespace vime::gpu
