// What forward and backward passes need of the ranks that share their work: over sockets on the CPU, over NCCL between
// GPUs.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "model/rank_group.hpp"

namespace vime::model {

// Sums have a fixed order (rank 0 + rank 1 + ...), whatever the size.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // All ranks' tensors (same shape on each), in rank order.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) = 0;
  // Dim 0 in `size` equal parts: the sum over all ranks of this rank's part.
  virtual torch::Tensor reduce_scatter(const torch::Tensor& whole) = 0;
};
using CollectivesPtr = std::shared_ptr<Collectives>;
CollectivesPtr single_rank();
// On the CPU: the ranks of a group.
CollectivesPtr over_group(std::shared_ptr<RankGroup> group);

}  // namespace vime::model
