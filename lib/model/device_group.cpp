#include "model/device_group.hpp"

#include <utility>

#include "base/error.hpp"
#include "model/torch_device.hpp"

namespace vime::model {
namespace {

gpu::CommunicatorOptions communicator_options(const RankGroup& group, std::chrono::milliseconds timeout) {
  gpu::CommunicatorOptions options;
  options.group = group.name();
  options.rank = group.rank();
  options.size = group.size();
  options.timeout = timeout;
  return options;
}

std::string shared_id(RankGroup& group) {
  return group.broadcast_string(group.rank() == 0 ? gpu::Communicator::unique_id() : "", 0);
}

uint64_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.nbytes());
}

class OverDevices final : public Collectives {
 public:
  explicit OverDevices(std::shared_ptr<DeviceGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override {
    return group_->all_gather(mine.to(group_->device())).to(mine.device()).unbind(0);
  }
  torch::Tensor reduce_scatter(const torch::Tensor& whole) override {
    return group_->sum_in_rank_order(whole.to(group_->device())).to(whole.device());
  }

 private:
  std::shared_ptr<DeviceGroup> group_;
};

}  // namespace

DeviceGroup::DeviceGroup(RankGroup& group, torch::Device device, std::chrono::milliseconds timeout)
    : device_(device), ranks_(communicator_options(group, timeout), shared_id(group)) {}

gpu::Stream DeviceGroup::stream() const {
  return current_stream(device_);
}

torch::Tensor DeviceGroup::all_gather(const torch::Tensor& mine) {
  const torch::Tensor own = mine.detach().contiguous();
  std::vector<int64_t> shape = own.sizes().vec();
  shape.insert(shape.begin(), size());
  torch::Tensor all = torch::empty(shape, own.options());
  ranks_.all_gather(own.data_ptr(), all.data_ptr(), bytes_of(own), stream());
  return all;
}

torch::Tensor DeviceGroup::sum_in_rank_order(const torch::Tensor& whole) {
  VIME_CHECK(whole.size(0) % size() == 0, "a reduce-scatter of equal parts");
  const torch::Tensor sent = whole.detach().contiguous();
  const int64_t rows = whole.size(0) / size();
  const auto part = [&](int of) { return sent.narrow(0, rows * of, rows); };
  std::vector<torch::Tensor> parts;
  std::vector<gpu::Communicator::Send> sends;
  std::vector<gpu::Communicator::Receive> receives;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) {
      parts.push_back(part(other));
      continue;
    }
    parts.push_back(torch::empty_like(part(rank())));
    sends.push_back({other, part(other).data_ptr(), bytes_of(parts.back())});
    receives.push_back({other, parts.back().data_ptr(), bytes_of(parts.back())});
  }
  ranks_.exchange(sends, receives, stream());
  const torch::ScalarType type = whole.scalar_type();
  if (type != torch::kBFloat16 && type != torch::kFloat16) return sum_in_order(parts);
  torch::Tensor sum = parts[0].to(torch::kFloat32);
  for (size_t i = 1; i < parts.size(); ++i) sum += parts[i];
  return sum.to(type);
}

torch::Tensor DeviceGroup::sum_part(const torch::Tensor& flat) {
  VIME_CHECK(flat.scalar_type() == torch::kFloat32 && flat.is_contiguous(), "gradients are float32, in one piece");
  const auto [begin, end] = RankGroup::part_of(flat.numel(), rank(), size());
  if (flat.numel() % size() == 0) {
    torch::Tensor sums = torch::empty({end - begin}, flat.options());
    ranks_.reduce_scatter(flat.data_ptr(), sums.data_ptr(), static_cast<uint64_t>(end - begin), gpu::Scalar::f32,
                          gpu::Reduction::sum, stream());
    return sums;
  }
  ranks_.all_reduce(flat.data_ptr(), flat.data_ptr(), static_cast<uint64_t>(flat.numel()), gpu::Scalar::f32,
                    gpu::Reduction::sum, stream());
  return flat.slice(0, begin, end);
}

void DeviceGroup::spread_parts(torch::Tensor& flat) {
  const auto part = [&](int of) {
    const auto [begin, end] = RankGroup::part_of(flat.numel(), of, size());
    return flat.slice(0, begin, end);
  };
  if (flat.numel() % size() == 0) {
    ranks_.all_gather(part(rank()).data_ptr(), flat.data_ptr(), bytes_of(part(rank())), stream());
    return;
  }
  for (int of = 0; of < size(); ++of) {
    torch::Tensor one = part(of);
    ranks_.broadcast(one.data_ptr(), bytes_of(one), of, stream());
  }
}

void DeviceGroup::swap(int other, const torch::Tensor& out, torch::Tensor& in) {
  std::vector<gpu::Communicator::Send> sends;
  std::vector<gpu::Communicator::Receive> receives;
  if (out.defined()) sends.push_back({other, out.data_ptr(), bytes_of(out)});
  if (in.defined()) receives.push_back({other, in.data_ptr(), bytes_of(in)});
  ranks_.exchange(sends, receives, stream());
}

CollectivesPtr over_devices(std::shared_ptr<DeviceGroup> group) {
  return std::make_shared<OverDevices>(std::move(group));
}

}  // namespace vime::model
