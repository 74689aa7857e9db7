#include "rank.hpp"

#include <torch/utils.h>
#include <utility>

namespace vime::planted {
namespace {

using namespace trainer;

// Sums that leave out all ranks but this one.
class Alone final : public model::Collectives {
 public:
  explicit Alone(model::CollectivesPtr real) : real_(std::move(real)) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override { return real_->all_gather(mine); }
  torch::Tensor reduce_scatter(const torch::Tensor& whole) override {
    real_->reduce_scatter(whole);
    const int64_t rows = whole.size(0) / size();
    return whole.narrow(0, rows * rank(), rows).clone();
  }

 private:
  model::CollectivesPtr real_;
};

class ShiftedStep final : public PolicyStep {
 public:
  using PolicyStep::PolicyStep;

 protected:
  std::vector<double> own(const std::vector<double>& values, const std::vector<int64_t>& places) const override {
    std::vector<double> mine;
    for (const int64_t place : places) mine.push_back(values[static_cast<size_t>(place > 0 ? place - 1 : 0)]);
    return mine;
  }
};

class PlantedRank final : public TrainerRank {
 public:
  PlantedRank(RankOptions options, std::string fault) : TrainerRank(std::move(options)), fault_(std::move(fault)) {
    if (fault_ == "swapped_gate_up" && is_last_of_tp()) swap_gate_and_up();
  }

  PushFigures push(int64_t version, const std::vector<PushTarget>& targets) override {
    return TrainerRank::push(fault_ == "version_never_set" ? 0 : version, targets);
  }

 protected:
  model::CollectivesPtr tensor_parallel(std::shared_ptr<model::RankGroup> tp) const override {
    model::CollectivesPtr real = TrainerRank::tensor_parallel(std::move(tp));
    if (fault_ == "missing_all_reduce" && layout().tp > 1) return std::make_shared<Alone>(real);
    return real;
  }

  std::unique_ptr<PolicyStep> make_policy_step() const override {
    if (fault_ != "cp_wrong_token" || layout().cp == 1) return TrainerRank::make_policy_step();
    return std::make_unique<ShiftedStep>(options().policy, model::over_group(groups().cp), groups().pipeline());
  }

  void complete_gradients() override {
    if (fault_ == "cp_unscaled") optimizer().flat_gradient().mul_(layout().cp);
    if (fault_ == "sign_flip" && is_last_of_tp()) {
      for (auto& parameter : decoder().parameters()) {
        if (parameter.name == "model.layers.1.mlp.up_proj.weight") parameter.value.mutable_grad().neg_();
      }
    }
    TrainerRank::complete_gradients();
  }

  void sum_tied_embeddings() override {
    TrainerRank::sum_tied_embeddings();
    if (fault_ == "tied_twice") TrainerRank::sum_tied_embeddings();
  }

  std::vector<tensor::TensorInfo> pushed_tensors() const override {
    std::vector<tensor::TensorInfo> tensors = TrainerRank::pushed_tensors();
    if (fault_ != "dropped_stage" || layout().pp == 1) return tensors;
    const arch::Stage stage = arch::stage_of(options().config, layout().pp - 1, layout().pp);
    const std::string first = "model.layers." + std::to_string(stage.begin) + ".";
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name.starts_with(first)) tensors.resize(i);
    }
    return tensors;
  }

  placement::Slot slot_of_push(const placement::Slot& slot) const override {
    if (fault_ != "leader_by_tp_rank" || place().tp_rank != 0) return slot;
    placement::Slot own = slot;
    own.start = place().rank;
    return own;
  }

  std::shared_ptr<model::RankGroup> join_slot(const std::optional<placement::Slot>& slot) override {
    std::shared_ptr<model::RankGroup> right = TrainerRank::join_slot(slot);
    return fault_ == "handles_over_tp" ? groups().tp : right;
  }

 private:
  const placement::Layout& layout() const { return options().plan.layout; }
  bool is_last_of_tp() const { return layout().tp > 1 && place().tp_rank == layout().tp - 1; }

  void swap_gate_and_up() {
    const torch::NoGradGuard no_grad;
    auto& parameters = decoder().parameters();
    for (size_t i = 0; i + 1 < parameters.size(); ++i) {
      if (!parameters[i].name.ends_with("gate_proj.weight")) continue;
      const torch::Tensor gate = parameters[i].value.clone();
      parameters[i].value.copy_(parameters[i + 1].value);
      parameters[i + 1].value.copy_(gate);
    }
  }

  std::string fault_;
};

}  // namespace

std::unique_ptr<TrainerRank> make_rank(RankOptions options, const std::string& fault) {
  return std::make_unique<PlantedRank>(std::move(options), fault);
}

}  // namespace vime::planted
