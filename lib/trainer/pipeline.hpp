// Micro-batches through the pipeline stages: who computes what when, and what goes from stage to stage. One thread.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "model/rank_group.hpp"

namespace vime::trainer {

// What a stage does with one micro-batch. Activations and their gradients have the shape that `shape` says, on both
// sides of a boundary, and are float32.
struct StageWork {
  // input: the activations of the stage before; undefined on the first stage. Returns this stage's; the last stage
  // returns nothing.
  std::function<torch::Tensor(size_t micro_batch, const torch::Tensor& input)> forward;
  // gradient: by what forward returned; undefined on the last stage. Returns the gradient by the input; the first stage
  // returns nothing.
  std::function<torch::Tensor(size_t micro_batch, const torch::Tensor& gradient)> backward;
  std::function<std::vector<int64_t>(size_t micro_batch)> shape;
};

class Pipeline {
 public:
  Pipeline() = default;  // one stage
  // previous, next: groups of two ranks, the earlier stage's being rank 0; null on the first and the last stage.
  // later_stages: behind this one.
  Pipeline(std::shared_ptr<model::RankGroup> previous, std::shared_ptr<model::RankGroup> next, int later_stages);

  bool first() const { return !previous_; }
  bool last() const { return !next_; }

  // Collective over the stages: all have the same number of micro-batches.
  void forward_only(size_t micro_batches, const StageWork& work) const;
  // One forward, one backward (1F1B, Narayanan et al. 2021, figure 4): a stage holds the activations of at most as many
  // micro-batches as there are stages from it on.
  void forward_backward(size_t micro_batches, const StageWork& work) const;

 private:
  torch::Tensor receive_input(const std::vector<int64_t>& shape) const;
  void send_output(const torch::Tensor& output) const;
  torch::Tensor swap_output(const torch::Tensor& output, const std::vector<int64_t>& shape) const;
  torch::Tensor receive_gradient(const std::vector<int64_t>& shape) const;
  void send_gradient(const torch::Tensor& gradient) const;
  torch::Tensor swap_gradient(const torch::Tensor& gradient, const std::vector<int64_t>& shape) const;

  std::shared_ptr<model::RankGroup> previous_, next_;
  int later_stages_ = 0;
};

}  // namespace vime::trainer
