// One worker's forward pass: a step's rows through its shard of the model, attention over the KV cache, and the draws.
// All workers of an engine run the same batches, as the decoder is collective. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "engine/executor.hpp"
#include "executor/start_workers.hpp"

namespace vime::executor {

struct ForwardShape {
  int64_t slots = 1;  // at most; what fits into memory may be fewer
  int64_t max_model_len = 1;
  int64_t rows_per_block = 64;  // of one pass through the model, on the CPU
  LogprobsMode logprobs_mode = LogprobsMode::processed;
};

class Forward {
 public:
  virtual ~Forward() = default;
  virtual int64_t slots() const = 0;
  // `draws`: whether this rank is the one that samples; the others return nothing.
  virtual std::vector<engine::Sampled> run(const engine::Batch& batch, bool draws) = 0;
  // Logits of every row, float32 [rows, vocab] in the host's memory; for tests and checks.
  virtual torch::Tensor logits(const std::vector<engine::TokenRow>& rows) = 0;
  // How many of all steps a captured graph has replayed; likewise. None on the CPU.
  virtual int64_t replayed_steps() const { return 0; }
  // Gives back the memory of the KV cache with its contents; no other call before wake().
  virtual void sleep() = 0;
  virtual void wake() = 0;
};

}  // namespace vime::executor
