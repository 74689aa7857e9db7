// The forward pass on the CPU: a step's rows in blocks of a fixed number of rows. A row's result does not depend on the
// other rows: every matrix product has the same shape whatever the load (missing rows are padding that touches no
// slot), and attention goes row by row.
#pragma once

#include <torch/types.h>

#include <vector>

#include "executor/forward.hpp"
#include "executor/kv_cache.hpp"
#include "model/decoder.hpp"

namespace vime::executor {

class HostForward final : public Forward {
 public:
  HostForward(model::Decoder& decoder, int tp_size, const ForwardShape& shape);

  int64_t slots() const override { return shape_.slots; }
  std::vector<engine::Sampled> run(const engine::Batch& batch, bool draws) override;
  torch::Tensor logits(const std::vector<engine::TokenRow>& rows) override;
  void sleep() override { cache_.drop(); }
  // Pages that were given back are taken again when they are written.
  void wake() override {}

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
