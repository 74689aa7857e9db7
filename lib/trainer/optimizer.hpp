// AdamW or SGD with gradient clipping over flat buffers that have an element for each of the decoder's arena, in the
// same places (padding included, which stays zero). The state is distributed (ZeRO-1, Rajbhandari et al. 2020): each of
// the ranks that hold the same parameters sums the gradients of one equal part of the buffer, keeps the state of that
// part, updates it and hands it to the others. Gradients and state are float32 whatever the weights are; weights of
// another type have a float32 master, which is what is updated, and get its values. One thread; what is marked so is
// collective.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algo/lr_schedule.hpp"
#include "model/decoder.hpp"
#include "model/rank_group.hpp"
#include "tensor/safetensors.hpp"
#include "trainer/replicas.hpp"

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
  // Takes over the gradients of the decoder's parameters: they become views of one buffer. The decoder must outlive
  // this.
  Optimizer(model::Decoder& decoder, const OptimizerOptions& options);
  // The ranks that hold the same parameters, and all ranks of the trainer (for the gradient norm). Before that: alone.
  void share(ReplicasPtr replicas, std::shared_ptr<model::RankGroup> world);

  torch::Tensor& flat_gradient() { return gradient_; }  // float32 [elements of the arena]: this rank's own
  // The sums of the step before go too: a backward pass needs the room.
  void zero_gradient() {
    gradient_.zero_();
    sums_ = torch::Tensor();
  }
  const torch::Tensor& weights() const { return weights_; }  // all of the arena, in the decoder's type

  // From here on the weights, which are float32, hold numbers of this narrower type only, as weights of that type
  // would; the master has what they lack. Before the first step; may be called again.
  void round_weights(torch::ScalarType type);

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
  // Moves the state to the host's memory (pinned) and gives up the gradients, and the way back, with gradients of zero.
  // Nothing else may be called in between. On the CPU nothing happens. Not collective.
  void offload();
  void onload();
  int64_t steps() const { return steps_; }  // taken, those not applied included: the schedule's clock

  // What a checkpoint holds of it besides counters: "exp_avg" and "exp_avg_sq", and "master" where the weights have
  // one.
  std::vector<std::string> state_names() const;
  // One of them whole, laid out as the arena, on the decoder's device. Collective over the replicas.
  torch::Tensor whole_state(const std::string& name);
  std::map<std::string, std::string> counters() const;  // a checkpoint's metadata
  // Reads this rank's part of the state, <name>.<HF name> of whole tensors, and the counters. Error{refused} naming
  // file and tensor where it is not this model's. A file without a master (of float32 weights) leaves the one that the
  // weights make.
  void load(const tensor::SafetensorsFile& file);

 private:
  int64_t elements() const { return weights_.numel(); }
  int64_t elements_of(uint64_t bytes) const {  // of the arena
    return static_cast<int64_t>(bytes / weights_.element_size());
  }
  torch::Tensor own(const torch::Tensor& flat) const { return flat.slice(0, begin_, end_); }
  bool mixed() const { return rounded_ || weights_.scalar_type() != torch::kFloat32; }
  void hand_on_master();
  void make_state();  // when it is first needed: share() decides on its size
  torch::Tensor& state_named(const std::string& name);
  std::pair<int64_t, int64_t> own_part(const arch::ArenaEntry& entry) const;  // begin, end; empty where end <= begin
  double norm_of_sums() const;
  void decay(double lr);
  void update(double lr, double scale);
  void update_fused(double lr, double scale);

  model::Decoder& decoder_;
  OptimizerOptions options_;
  ReplicasPtr replicas_;
  std::shared_ptr<model::RankGroup> world_;
  torch::Tensor weights_;  // the arena, [elements]
  std::optional<torch::ScalarType> rounded_;
  torch::Tensor gradient_;              // float32 [elements]; undefined while offloaded
  int64_t begin_ = 0, end_ = 0;         // this rank's part of it
  torch::Tensor master_;                // float32, of the part: the weights themselves where they are all of it
  torch::Tensor sums_;                  // the part's gradients of all replicas; the gradient itself where there is one
  torch::Tensor exp_avg_, exp_avg_sq_;  // of the part; undefined with sgd
  int64_t steps_ = 0;
  int64_t applied_ = 0;  // the clock of the moments' bias corrections
};

}  // namespace vime::trainer
