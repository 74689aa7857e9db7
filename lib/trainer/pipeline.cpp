#include "trainer/pipeline.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace vime::trainer {
namespace {

using model::RankGroup;
using model::RankLinks;

// Both ends of a boundary name an exchange by what it carries, so that stages that got out of step learn of it.
constexpr const char* kActivations = "activations";
constexpr const char* kGradients = "gradients";
constexpr const char* kBoth = "activations and gradients";

RankLinks::Piece piece_of(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), static_cast<uint64_t>(tensor.nbytes())};
}

class OverSockets final : public StageBoundary {
 public:
  explicit OverSockets(std::shared_ptr<RankGroup> pair) : pair_(std::move(pair)) {}

  void swap(const char* what, const torch::Tensor& out, torch::Tensor& in) override {
    const torch::Tensor from = out.defined() ? out.cpu() : out;
    torch::Tensor to = in.defined() && in.is_cuda() ? torch::empty(in.sizes(), in.options().device(torch::kCPU)) : in;
    const auto other = static_cast<size_t>(1 - pair_->rank());
    std::vector<RankLinks::Piece> pieces(2);
    std::vector<RankLinks::Space> spaces(2);
    if (from.defined()) pieces[other] = piece_of(from);
    if (to.defined())
      spaces[other] = {static_cast<std::byte*>(to.data_ptr()), static_cast<uint64_t>(to.nbytes()), nullptr};
    pair_->exchange(what, pieces, spaces);
    if (in.defined() && in.is_cuda()) in.copy_(to);
  }

 private:
  std::shared_ptr<RankGroup> pair_;
};

class OverDevices final : public StageBoundary {
 public:
  explicit OverDevices(std::shared_ptr<model::DeviceGroup> pair) : pair_(std::move(pair)) {}
  void swap(const char*, const torch::Tensor& out, torch::Tensor& in) override {
    pair_->swap(1 - pair_->rank(), out, in);
  }

 private:
  std::shared_ptr<model::DeviceGroup> pair_;
};

// sent: undefined = nothing; work: of what comes back, null = nothing.
torch::Tensor swap(const StageBoundaryPtr& boundary, const char* what, const torch::Tensor& sent, const StageWork* work,
                   size_t micro_batch) {
  if (!boundary) return {};
  torch::Tensor in = work == nullptr ? torch::Tensor() : torch::empty(work->shape(micro_batch), work->options);
  boundary->swap(what, sent.defined() ? sent.detach().contiguous() : sent, in);
  return in;
}

}  // namespace

StageBoundaryPtr over_sockets_between(std::shared_ptr<RankGroup> pair) {
  return pair ? std::make_shared<OverSockets>(std::move(pair)) : nullptr;
}

StageBoundaryPtr over_devices_between(std::shared_ptr<model::DeviceGroup> pair) {
  return pair ? std::make_shared<OverDevices>(std::move(pair)) : nullptr;
}

Pipeline::Pipeline(StageBoundaryPtr previous, StageBoundaryPtr next, int later_stages)
    : previous_(std::move(previous)), next_(std::move(next)), later_stages_(later_stages) {
  VIME_CHECK((later_stages_ == 0) == !next_, "a next stage where there are later ones");
}

torch::Tensor Pipeline::receive_input(const StageWork& work, size_t micro_batch) const {
  return swap(previous_, kActivations, {}, &work, micro_batch);
}
void Pipeline::send_output(const torch::Tensor& output) const {
  swap(next_, kActivations, output, nullptr, 0);
}
torch::Tensor Pipeline::swap_output(const torch::Tensor& output, const StageWork& work, size_t micro_batch) const {
  return swap(next_, kBoth, output, &work, micro_batch);
}
torch::Tensor Pipeline::receive_gradient(const StageWork& work, size_t micro_batch) const {
  return swap(next_, kGradients, {}, &work, micro_batch);
}
void Pipeline::send_gradient(const torch::Tensor& gradient) const {
  swap(previous_, kGradients, gradient, nullptr, 0);
}
torch::Tensor Pipeline::swap_gradient(const torch::Tensor& gradient, const StageWork& work, size_t micro_batch) const {
  return swap(previous_, kBoth, gradient, &work, micro_batch);
}

void Pipeline::forward_only(size_t micro_batches, const StageWork& work) const {
  for (size_t i = 0; i < micro_batches; ++i) send_output(work.forward(i, receive_input(work, i)));
}

void Pipeline::forward_backward(size_t micro_batches, const StageWork& work) const {
  const size_t ahead = std::min(micro_batches, static_cast<size_t>(later_stages_));
  for (size_t i = 0; i < ahead; ++i) send_output(work.forward(i, receive_input(work, i)));
  torch::Tensor input;
  if (ahead < micro_batches) input = receive_input(work, ahead);
  for (size_t i = ahead; i < micro_batches; ++i) {
    const size_t behind = i - ahead;
    const torch::Tensor gradient = swap_output(work.forward(i, input), work, behind);
    const torch::Tensor sent = work.backward(behind, gradient);
    if (i + 1 == micro_batches) {
      send_gradient(sent);
    } else {
      input = swap_gradient(sent, work, i + 1);
    }
  }
  for (size_t i = micro_batches - ahead; i < micro_batches; ++i) {
    send_gradient(work.backward(i, receive_gradient(work, i)));
  }
}

}  // namespace vime::trainer
