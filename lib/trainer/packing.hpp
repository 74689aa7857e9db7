// A micro-batch as one rank computes it: sequences lie one behind the other, without padding, and under context
// parallelism each rank has two pieces of every sequence. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "model/attention.hpp"
#include "rollout/schedule.hpp"
#include "rollout/train_batch.hpp"

namespace vime::trainer {

// A batch, and where each sample's tokens and responses begin in it.
struct BatchView {
  const rollout::TrainBatch& batch;
  std::vector<int64_t> token_offsets;     // [samples + 1]
  std::vector<int64_t> response_offsets;  // [samples + 1]

  explicit BatchView(const rollout::TrainBatch& of);
};

struct Packing {
  torch::Tensor ids;        // int64 [rows]; 0 where a row is padding
  torch::Tensor positions;  // int64 [rows]
  model::Attention attention;

  // The response tokens that this rank's rows predict: the row before a token predicts it.
  torch::Tensor selected;                 // int64 [own tokens]: rows; on the device
  torch::Tensor targets;                  // int64 [own tokens]; on the device
  std::vector<int64_t> places;            // [own tokens]: which of the micro-batch's response tokens each is
  int64_t response_tokens = 0;            // of the micro-batch, all context-parallel ranks together
  std::vector<int64_t> response_lengths;  // [samples]

  int64_t rows() const { return ids.size(0); }
};

// Which piece of a sequence each context-parallel rank has (zig-zag: Megatron's, so that causal attention is shared
// evenly): a sequence is cut into 2 * size pieces of equal length, the last ones short or empty; rank r has pieces r
// and 2 * size - 1 - r.
struct ZigZag {
  int64_t length = 0;  // of the sequence
  int size = 1;
  int64_t piece() const { return (length + 2 * size - 1) / (2 * size); }  // tokens
  int64_t rows() const { return 2 * piece(); }                            // of each rank, padding included
  int rank_of(int64_t position) const;
  int64_t row_of(int64_t position) const;  // on that rank, within the sequence's rows
};

// The number of rows is a multiple of `row_multiple` and, for the same micro-batch, the same on every rank of `cp`.
// device and dtype: of the model that computes it; same_bits: as packed_attention has it.
Packing pack(const BatchView& view, const rollout::MicroBatch& samples, const model::CollectivesPtr& cp,
             int row_multiple, torch::Device device = torch::kCPU, torch::ScalarType dtype = torch::kFloat32,
             bool same_bits = false);
}  // namespace vime::trainer
