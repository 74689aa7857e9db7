#include "trainer/replicas.hpp"

namespace vime::trainer {
namespace {

class OverSockets final : public Replicas {
 public:
  explicit OverSockets(std::shared_ptr<model::RankGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  torch::Tensor sum_part(const torch::Tensor& flat) override { return group_->sum_part(flat.cpu()).to(flat.device()); }

  void spread_parts(torch::Tensor& flat) override {
    if (size() == 1) return;
    if (!flat.is_cuda()) return group_->spread_parts(flat);
    torch::Tensor host = flat.cpu();
    group_->spread_parts(host);
    flat.copy_(host);
  }

 private:
  std::shared_ptr<model::RankGroup> group_;
};

class OverDevices final : public Replicas {
 public:
  explicit OverDevices(std::shared_ptr<model::DeviceGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  torch::Tensor sum_part(const torch::Tensor& flat) override { return group_->sum_part(flat); }
  void spread_parts(torch::Tensor& flat) override { group_->spread_parts(flat); }

 private:
  std::shared_ptr<model::DeviceGroup> group_;
};

}  // namespace

ReplicasPtr replicas_over_devices(std::shared_ptr<model::DeviceGroup> group) {
  return std::make_shared<OverDevices>(std::move(group));
}

ReplicasPtr replicas_over_sockets(std::shared_ptr<model::RankGroup> group) {
  return std::make_shared<OverSockets>(std::move(group));
}

}  // namespace vime::trainer
