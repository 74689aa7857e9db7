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

// sent: undefined = nothing; shape: of what comes back, null = nothing.
torch::Tensor swap(const std::shared_ptr<RankGroup>& pair, const char* what, const torch::Tensor& sent,
                   const std::vector<int64_t>* shape) {
  if (!pair) return {};
  const torch::Tensor out = sent.defined() ? sent.detach().contiguous() : torch::Tensor();
  torch::Tensor in = shape == nullptr ? torch::Tensor() : torch::empty(*shape, torch::kFloat32);
  const auto other = static_cast<size_t>(1 - pair->rank());
  std::vector<RankLinks::Piece> pieces(2);
  std::vector<RankLinks::Space> spaces(2);
  if (out.defined()) pieces[other] = piece_of(out);
  if (in.defined())
    spaces[other] = {static_cast<std::byte*>(in.data_ptr()), static_cast<uint64_t>(in.nbytes()), nullptr};
  pair->exchange(what, pieces, spaces);
  return in;
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<RankGroup> previous, std::shared_ptr<RankGroup> next, int later_stages)
    : previous_(std::move(previous)), next_(std::move(next)), later_stages_(later_stages) {
  VIME_CHECK((later_stages_ == 0) == !next_, "a next stage where there are later ones");
}

torch::Tensor Pipeline::receive_input(const std::vector<int64_t>& shape) const {
  return swap(previous_, kActivations, {}, &shape);
}
void Pipeline::send_output(const torch::Tensor& output) const {
  swap(next_, kActivations, output, nullptr);
}
torch::Tensor Pipeline::swap_output(const torch::Tensor& output, const std::vector<int64_t>& shape) const {
  return swap(next_, kBoth, output, &shape);
}
torch::Tensor Pipeline::receive_gradient(const std::vector<int64_t>& shape) const {
  return swap(next_, kGradients, {}, &shape);
}
void Pipeline::send_gradient(const torch::Tensor& gradient) const {
  swap(previous_, kGradients, gradient, nullptr);
}
torch::Tensor Pipeline::swap_gradient(const torch::Tensor& gradient, const std::vector<int64_t>& shape) const {
  return swap(previous_, kBoth, gradient, &shape);
}

void Pipeline::forward_only(size_t micro_batches, const StageWork& work) const {
  for (size_t i = 0; i < micro_batches; ++i) send_output(work.forward(i, receive_input(work.shape(i))));
}

void Pipeline::forward_backward(size_t micro_batches, const StageWork& work) const {
  const size_t ahead = std::min(micro_batches, static_cast<size_t>(later_stages_));
  for (size_t i = 0; i < ahead; ++i) send_output(work.forward(i, receive_input(work.shape(i))));
  torch::Tensor input;
  if (ahead < micro_batches) input = receive_input(work.shape(ahead));
  for (size_t i = ahead; i < micro_batches; ++i) {
    const size_t behind = i - ahead;
    const torch::Tensor gradient = swap_output(work.forward(i, input), work.shape(behind));
    const torch::Tensor sent = work.backward(behind, gradient);
    if (i + 1 == micro_batches) {
      send_gradient(sent);
    } else {
      input = swap_gradient(sent, work.shape(i + 1));
    }
  }
  for (size_t i = micro_batches - ahead; i < micro_batches; ++i) {
    send_gradient(work.backward(i, receive_gradient(work.shape(i))));
  }
}

}  // namespace vime::trainer
