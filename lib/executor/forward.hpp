// One worker's forward pass: a step's rows in blocks of a fixed number of rows through its shard of the model,
// attention over the KV cache, and the draws. All workers of an engine run the same batches, as the decoder is
// collective. A row's result does not depend on the other rows: every matrix product has the same shape whatever the
// load (missing rows are padding that touches no slot), and attention goes row by row. One thread.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "engine/executor.hpp"
#include "executor/kv_cache.hpp"
#include "executor/start_workers.hpp"
#include "model/decoder.hpp"

namespace vime::executor {

struct ForwardShape {
  int64_t slots = 1;
  int64_t max_model_len = 1;
  int64_t rows_per_block = 64;
  LogprobsMode logprobs_mode = LogprobsMode::processed;
};

class Forward {
 public:
  Forward(model::Decoder& decoder, int tp_size, const ForwardShape& shape);

  // `draws`: whether this rank is the one that samples; the others return nothing.
  std::vector<engine::Sampled> run(const engine::Batch& batch, bool draws);
  // Logits of every row, [rows, vocab]; for tests and checks.
  torch::Tensor logits(const std::vector<engine::TokenRow>& rows);
  void drop_cache() { cache_.drop(); }

 private:
  torch::Tensor hidden(const engine::TokenRow* rows, int64_t count);
  torch::Tensor attention(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                          const engine::TokenRow* rows, int64_t count);
  void store(int layer, const torch::Tensor& k, const torch::Tensor& v, const engine::TokenRow* rows, int64_t count);

  model::Decoder& decoder_;
  ForwardShape shape_;
  KvCache cache_;
  std::vector<float> scores_;
};

}  // namespace vime::executor
