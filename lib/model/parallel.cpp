#include "model/parallel.hpp"

#include <torch/autograd.h>
#include <algorithm>

#include "base/error.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Keeps the group alive until the backward pass; autograd stores IValues only.
struct Holder : torch::CustomClassHolder {
  explicit Holder(CollectivesPtr group) : tp(std::move(group)) {}
  CollectivesPtr tp;
};

void keep(AutogradContext* context, const CollectivesPtr& tp) {
  context->saved_data["tp"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(tp));
}

CollectivesPtr kept(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Holder>(context->saved_data["tp"].toCapsule())->tp;
}

// Over ranks begin..end-1.
torch::Tensor sum_of(const torch::Tensor& mine, Collectives& ranks, int begin, int end) {
  const std::vector<torch::Tensor> parts = ranks.all_gather(mine.contiguous());
  return sum_in_order({parts.begin() + begin, parts.begin() + end});
}

struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& partial, const CollectivesPtr& tp) {
    return sum_of(partial, *tp, 0, tp->size());
  }
  static tensor_list backward(AutogradContext*, tensor_list gradients) { return {gradients[0], torch::Tensor()}; }
};

struct ShareWithRanks : torch::autograd::Function<ShareWithRanks> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& value, const CollectivesPtr& tp,
                               int64_t sharers) {
    keep(context, tp);
    context->saved_data["sharers"] = sharers;
    return value.view_as(value);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const CollectivesPtr tp = kept(context);
    const int sharers = static_cast<int>(context->saved_data["sharers"].toInt());
    const int begin = tp->rank() / sharers * sharers;
    return {sum_of(gradients[0], *tp, begin, begin + sharers), torch::Tensor(), torch::Tensor()};
  }
};

struct GatherColumns : torch::autograd::Function<GatherColumns> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& mine, const CollectivesPtr& tp,
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

struct GatherRows : torch::autograd::Function<GatherRows> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& mine, const CollectivesPtr& ranks) {
    keep(context, ranks);
    return torch::cat(ranks->all_gather(mine.contiguous()));
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    return {kept(context)->reduce_scatter(gradients[0]), torch::Tensor()};
  }
};

struct SumToRows : torch::autograd::Function<SumToRows> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& partial, const CollectivesPtr& ranks) {
    keep(context, ranks);
    return ranks->reduce_scatter(partial);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    return {torch::cat(kept(context)->all_gather(gradients[0].contiguous())), torch::Tensor()};
  }
};

class SingleRank final : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override { return {mine}; }
  torch::Tensor reduce_scatter(const torch::Tensor& whole) override { return whole; }
};

class OverGroup final : public Collectives {
 public:
  explicit OverGroup(std::shared_ptr<RankGroup> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override { return group_->all_gather(mine); }
  torch::Tensor reduce_scatter(const torch::Tensor& whole) override { return group_->reduce_scatter(whole); }

 private:
  std::shared_ptr<RankGroup> group_;
};

}  // namespace

CollectivesPtr single_rank() {
  return std::make_shared<SingleRank>();
}

CollectivesPtr over_group(std::shared_ptr<RankGroup> group) {
  if (group->size() == 1) return single_rank();  // on any device
  return std::make_shared<OverGroup>(std::move(group));
}

torch::Tensor sum_over_ranks(const torch::Tensor& partial, const CollectivesPtr& tp) {
  return tp->size() == 1 ? partial : SumOverRanks::apply(partial, tp);
}

torch::Tensor share_with_ranks(const torch::Tensor& value, const CollectivesPtr& tp, int sharers) {
  if (sharers == 1 || !torch::GradMode::is_enabled()) return value;
  return ShareWithRanks::apply(value, tp, static_cast<int64_t>(sharers));
}

torch::Tensor gather_columns(const torch::Tensor& mine, const CollectivesPtr& tp, int64_t columns) {
  return tp->size() == 1 ? mine : GatherColumns::apply(mine, tp, columns);
}

torch::Tensor gather_rows(const torch::Tensor& mine, const CollectivesPtr& ranks) {
  return ranks->size() == 1 ? mine : GatherRows::apply(mine, ranks);
}

torch::Tensor sum_to_rows(const torch::Tensor& partial, const CollectivesPtr& ranks) {
  return ranks->size() == 1 ? partial : SumToRows::apply(partial, ranks);
}

}  // namespace vime::model
