// Micro-batches through the pipeline stages: who computes what when, and what goes from stage to stage. One thread.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "model/device_group.hpp"
#include "model/rank_group.hpp"

namespace vime::trainer {

// What a stage does with one micro-batch. Activations and their gradients have the shape that `shape` says and the type
// and device of `options`, on both sides of a boundary.
struct StageWork {
  // input: the activations of the stage before; undefined on the first stage. Returns this stage's; the last stage
  // returns nothing.
  std::function<torch::Tensor(size_t micro_batch, const torch::Tensor& input)> forward;
  // gradient: by what forward returned; undefined on the last stage. Returns the gradient by the input; the first stage
  // returns nothing.
  std::function<torch::Tensor(size_t micro_batch, const torch::Tensor& gradient)> backward;
  std::function<std::vector<int64_t>(size_t micro_batch)> shape;
  torch::TensorOptions options = torch::TensorOptions().dtype(torch::kFloat32);
};

// Between two neighbouring stages. Both ends make every exchange at the same time.
class StageBoundary {
 public:
  virtual ~StageBoundary() = default;
  // Sends `out` and receives into `in`; either may be undefined. Both ends name what it carries.
  virtual void swap(const char* what, const torch::Tensor& out, torch::Tensor& in) = 0;
};
using StageBoundaryPtr = std::shared_ptr<StageBoundary>;
// Of a group of two ranks, the earlier stage's being rank 0. What lies on a GPU goes through the host's memory. Null
// for null.
StageBoundaryPtr over_sockets_between(std::shared_ptr<model::RankGroup> pair);
StageBoundaryPtr over_devices_between(std::shared_ptr<model::DeviceGroup> pair);  // from GPU to GPU

class Pipeline {
 public:
  Pipeline() = default;  // one stage
  // previous, next: null on the first and the last stage. later_stages: behind this one.
  Pipeline(StageBoundaryPtr previous, StageBoundaryPtr next, int later_stages);
  Pipeline(std::shared_ptr<model::RankGroup> previous, std::shared_ptr<model::RankGroup> next, int later_stages)
      : Pipeline(over_sockets_between(std::move(previous)), over_sockets_between(std::move(next)), later_stages) {}

  bool first() const { return !previous_; }
  bool last() const { return !next_; }

  // Collective over the stages: all have the same number of micro-batches.
  void forward_only(size_t micro_batches, const StageWork& work) const;
  // One forward, one backward (1F1B, Narayanan et al. 2021, figure 4): a stage holds the activations of at most as many
  // micro-batches as there are stages from it on.
  void forward_backward(size_t micro_batches, const StageWork& work) const;

 private:
  torch::Tensor receive_input(const StageWork& work, size_t micro_batch) const;
  void send_output(const torch::Tensor& output) const;
  torch::Tensor swap_output(const torch::Tensor& output, const StageWork& work, size_t micro_batch) const;
  torch::Tensor receive_gradient(const StageWork& work, size_t micro_batch) const;
  void send_gradient(const torch::Tensor& gradient) const;
  torch::Tensor swap_gradient(const torch::Tensor& gradient, const StageWork& work, size_t micro_batch) const;

  StageBoundaryPtr previous_, next_;
  int later_stages_ = 0;
};

}  // namespace vime::trainer
