// Tensors on GPUs between the ranks of a group, over NCCL, on LibTorch's current stream: nothing blocks but joining.
// What does not come by the group's deadline breaks the communicator, after which every call is Error{process_failed}.
// All ranks call the same operations in the same order; one thread at a time.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "gpu/communicator.hpp"
#include "model/collectives.hpp"
#include "model/rank_group.hpp"

namespace vime::model {

class DeviceGroup {
 public:
  // Collective over `group`, whose ranks have a GPU each: `device`, the calling thread's. Blocks at most `timeout`.
  DeviceGroup(RankGroup& group, torch::Device device, std::chrono::milliseconds timeout);

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  torch::Device device() const { return device_; }

  // [size, ...]: all ranks' tensors (same shape on each).
  torch::Tensor all_gather(const torch::Tensor& mine);
  // Dim 0 in `size` equal parts: the sum over all ranks of this rank's part, in float32 at least, rank 0 + rank 1 + ...
  torch::Tensor sum_in_rank_order(const torch::Tensor& whole);
  // Of a flat tensor in parts (RankGroup::part_of): the sum over all ranks of this rank's part, in NCCL's order. A
  // buffer that has no equal parts is summed as a whole, in place.
  torch::Tensor sum_part(const torch::Tensor& flat);
  void spread_parts(torch::Tensor& flat);
  // Sends to and receives from one other rank; either may be undefined.
  void swap(int other, const torch::Tensor& out, torch::Tensor& in);

  void leave(const std::string& reason) { ranks_.leave(reason); }
  bool broken() const { return ranks_.broken(); }

 private:
  gpu::Stream stream() const;

  torch::Device device_;
  gpu::Communicator ranks_;
};

// What lies on the CPU goes over the GPUs and back.
CollectivesPtr over_devices(std::shared_ptr<DeviceGroup> group);

}  // namespace vime::model
