// AdamW or SGD with gradient clipping over flat buffers that lie exactly as the decoder's arena does (padding included,
// which stays zero). The state is distributed (ZeRO-1, Rajbhandari et al. 2020): each of the ranks that hold the same
// parameters sums the gradients of one equal part of the buffer, keeps the state of that part, updates it and hands it
// to the others. One thread; what is marked so is collective.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algo/lr_schedule.hpp"
#include "model/decoder.hpp"
#include "model/rank_group.hpp"
#include "tensor/safetensors.hpp"

namespace vime::trainer {

enum class OptimizerType { adam, sgd };
OptimizerType parse_optimizer_type(const std::string& name);  // "adam", "sgd"

struct OptimizerOptions {
  OptimizerType type = OptimizerType::adam;
  algo::LrSchedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;  // of matrices; norms and biases have none
  double clip_grad = 1.0;     // largest gradient norm; 0: no clipping
};

class Optimizer {
 public:
  // Takes over the gradients of the decoder's parameters: they become views of one buffer. The decoder (float32) must
  // outlive this.
  Optimizer(model::Decoder& decoder, const OptimizerOptions& options);
  // The ranks that hold the same parameters, and all ranks of the trainer (for the gradient norm). Before that: alone.
  void share(std::shared_ptr<model::RankGroup> replicas, std::shared_ptr<model::RankGroup> world);

  torch::Tensor& flat_gradient() { return gradient_; }  // float32 [arena bytes / 4]: this rank's own
  void zero_gradient() { gradient_.zero_(); }

  struct Result {
    double grad_norm = 0.0;  // before clipping, over all parameters of the model
    double lr = 0.0;         // that the schedule gave this step
    bool applied = false;    // false: the norm was not finite and the weights were left as they were
  };
  // Loshchilov and Hutter 2019, algorithms 1 and 2, with the decay scaled by the learning rate as PyTorch does.
  // Collective over the world.
  Result step();
  // The last step's gradient, summed over the replicas, before clipping; laid out as the arena. Collective over the
  // replicas. Before the next step only.
  torch::Tensor summed_gradient() const;
  int64_t steps() const { return steps_; }  // taken, those not applied included: the schedule's clock

  // What a checkpoint holds of it besides counters: "exp_avg" and "exp_avg_sq", or nothing.
  std::vector<std::string> moment_names() const;
  // One of them whole, laid out as the arena. Collective over the replicas.
  torch::Tensor whole_moment(const std::string& name);
  std::map<std::string, std::string> counters() const;  // a checkpoint's metadata
  // Reads this rank's part of the moments, <moment>.<HF name> of whole tensors, and the counters. Error{refused} naming
  // file and tensor where it is not this model's.
  void load(const tensor::SafetensorsFile& file);

 private:
  int64_t elements() const { return gradient_.numel(); }
  torch::Tensor own(const torch::Tensor& flat) const { return flat.slice(0, begin_, end_); }
  void make_moments();  // when they are first needed: share() decides on their size
  std::pair<int64_t, int64_t> own_part(const arch::ArenaEntry& entry) const;  // begin, end; empty where end <= begin
  double norm_of_sums() const;
  void decay(double lr);
  void update(double lr, double scale);

  model::Decoder& decoder_;
  OptimizerOptions options_;
  std::shared_ptr<model::RankGroup> replicas_, world_;
  torch::Tensor weights_, gradient_;    // float32 [arena bytes / 4]
  int64_t begin_ = 0, end_ = 0;         // this rank's part of it
  torch::Tensor sums_;                  // the part's gradients of all replicas; the gradient itself where there is one
  torch::Tensor exp_avg_, exp_avg_sq_;  // of the part; undefined with sgd
  int64_t steps_ = 0;
  int64_t applied_ = 0;  // the clock of the moments' bias corrections
};

}  // namespace vime::trainer
