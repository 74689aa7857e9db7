#include "model/parallel.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Keeps the group alive until the backward pass; autograd stores IValues only.
struct Holder : torch::CustomClassHolder {
  explicit Holder(TensorParallelPtr group) : tp(std::move(group)) {}
  TensorParallelPtr tp;
};

void keep(AutogradContext* context, const TensorParallelPtr& tp) {
  context->saved_data["tp"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(tp));
}

TensorParallelPtr kept(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Holder>(context->saved_data["tp"].toCapsule())->tp;
}

// Ranks begin..end-1 in rank order: the order, and with it every bit, is the same on all ranks and for all sizes.
torch::Tensor sum_of(const torch::Tensor& mine, TensorParallel& tp, int begin, int end) {
  const std::vector<torch::Tensor> parts = tp.all_gather(mine.contiguous());
  torch::Tensor sum = parts[static_cast<std::size_t>(begin)].clone();
  for (int r = begin + 1; r < end; ++r) sum.add_(parts[static_cast<std::size_t>(r)]);
  return sum;
}

struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& partial, const TensorParallelPtr& tp) {
    return sum_of(partial, *tp, 0, tp->size());
  }
  static tensor_list backward(AutogradContext*, tensor_list gradients) { return {gradients[0], torch::Tensor()}; }
};

struct ShareWithRanks : torch::autograd::Function<ShareWithRanks> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& value, const TensorParallelPtr& tp,
                               int64_t sharers) {
    keep(context, tp);
    context->saved_data["sharers"] = sharers;
    return value.view_as(value);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const TensorParallelPtr tp = kept(context);
    const int sharers = static_cast<int>(context->saved_data["sharers"].toInt());
    const int begin = tp->rank() / sharers * sharers;
    return {sum_of(gradients[0], *tp, begin, begin + sharers), torch::Tensor(), torch::Tensor()};
  }
};

struct GatherColumns : torch::autograd::Function<GatherColumns> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& mine, const TensorParallelPtr& tp,
                               int64_t columns) {
    const int64_t part = (columns + tp->size() - 1) / tp->size();
    context->saved_data["begin"] = std::min(columns, part * tp->rank());
    context->saved_data["count"] = mine.size(1);
    torch::Tensor padded = mine.contiguous();
    if (mine.size(1) < part) padded = torch::constant_pad_nd(mine, {0, part - mine.size(1)});
    return torch::cat(tp->all_gather(padded), 1).narrow(1, 0, columns);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const int64_t begin = context->saved_data["begin"].toInt();
    const int64_t count = context->saved_data["count"].toInt();
    return {gradients[0].narrow(1, begin, count), torch::Tensor(), torch::Tensor()};
  }
};

class SingleRank final : public TensorParallel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override { return {mine}; }
};

class OverGroup final : public TensorParallel {
 public:
  explicit OverGroup(std::shared_ptr<RankGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override { return group_->all_gather(mine); }

 private:
  std::shared_ptr<RankGroup> group_;
};

}  // namespace

std::shared_ptr<TensorParallel> single_rank() {
  return std::make_shared<SingleRank>();
}

std::shared_ptr<TensorParallel> over_group(std::shared_ptr<RankGroup> group) {
  return std::make_shared<OverGroup>(std::move(group));
}

torch::Tensor sum_over_ranks(const torch::Tensor& partial, const TensorParallelPtr& tp) {
  return tp->size() == 1 ? partial : SumOverRanks::apply(partial, tp);
}

torch::Tensor share_with_ranks(const torch::Tensor& value, const TensorParallelPtr& tp, int sharers) {
  if (sharers == 1 || !torch::GradMode::is_enabled()) return value;
  return ShareWithRanks::apply(value, tp, static_cast<int64_t>(sharers));
}

torch::Tensor gather_columns(const torch::Tensor& mine, const TensorParallelPtr& tp, int64_t columns) {
  return tp->size() == 1 ? mine : GatherColumns::apply(mine, tp, columns);
}

}  // namespace vime::model
