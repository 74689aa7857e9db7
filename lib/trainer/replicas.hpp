// The ranks that hold the same parameters, as the optimizer needs them: each sums the gradients of one part of a flat
// buffer and hands its part of the result to the others. One thread; collective.
#pragma once

#include <torch/types.h>

#include <memory>
#include <utility>

#include "model/device_group.hpp"
#include "model/rank_group.hpp"

namespace vime::trainer {

class Replicas {
 public:
  virtual ~Replicas() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The sum over all ranks of this rank's part (RankGroup::part_of) of a flat tensor.
  virtual torch::Tensor sum_part(const torch::Tensor& flat) = 0;
  virtual void spread_parts(torch::Tensor& flat) = 0;  // each rank's part to all others, in place

  std::pair<int64_t, int64_t> part_of(int64_t elements) const {
    return model::RankGroup::part_of(elements, rank(), size());
  }
};
using ReplicasPtr = std::shared_ptr<Replicas>;

// Over sockets; what lies on a GPU goes through the host's memory.
ReplicasPtr replicas_over_sockets(std::shared_ptr<model::RankGroup> group);
// From GPU to GPU. A tensor without equal parts is summed in place.
ReplicasPtr replicas_over_devices(std::shared_ptr<model::DeviceGroup> group);

}  // namespace vime::trainer
