#include "model/rank_group.hpp"

#include <torch/utils.h>
#include <algorithm>
#include <optional>

#include "base/error.hpp"

namespace vime::model {
namespace {

// Below this an exchange costs more than the bytes in it, so that one exchange of whole tensors beats two of parts.
constexpr int64_t kSmallBytes = 64 * 1024;

const std::byte* bytes_of(const torch::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.data_ptr());
}
std::byte* mutable_bytes_of(torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}
uint64_t size_of(const torch::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.nbytes());
}

void check_on_cpu(const torch::Tensor& tensor, const char* operation) {
  VIME_CHECK(tensor.device().is_cpu(),
             std::string(operation) + " takes CPU tensors, found one on " + tensor.device().str());
}

}  // namespace

torch::Tensor sum_in_order(const std::vector<torch::Tensor>& parts) {
  torch::Tensor sum = parts.front().clone();
  for (std::size_t r = 1; r < parts.size(); ++r) sum.add_(parts[r]);
  return sum;
}

RankGroup::RankGroup(Membership membership, std::unique_ptr<RankLinks> links)
    : membership_(std::move(membership)), links_(std::move(links)) {}

std::shared_ptr<RankGroup> RankGroup::host(MeetingPoint point, Membership membership) {
  auto links = std::make_unique<RankLinks>(membership, std::move(point));
  return std::shared_ptr<RankGroup>(new RankGroup(std::move(membership), std::move(links)));
}

std::shared_ptr<RankGroup> RankGroup::join(const std::string& address, uint16_t port, Membership membership) {
  auto links = std::make_unique<RankLinks>(membership, address, port);
  return std::shared_ptr<RankGroup>(new RankGroup(std::move(membership), std::move(links)));
}

std::shared_ptr<RankGroup> RankGroup::alone(const std::string& name) {
  Membership membership;
  membership.name = name;
  return std::shared_ptr<RankGroup>(new RankGroup(std::move(membership), nullptr));
}

std::shared_ptr<RankGroup> RankGroup::subgroup(const std::string& name, const std::vector<int>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  for (const int member : ranks) {
    VIME_CHECK(member >= 0 && member < size(), "subgroup \"" + name + "\": no rank " + std::to_string(member));
  }
  const bool member = own != ranks.end();
  const bool leader = member && own == ranks.begin() && ranks.size() > 1;
  std::optional<MeetingPoint> point;
  if (leader) point.emplace(links_->local_address());
  const std::vector<std::string> places =
      all_gather_strings(leader ? point->address() + " " + std::to_string(point->port()) : "");
  if (!member) return nullptr;
  if (ranks.size() == 1) return alone(name);
  Membership inner = membership_;
  inner.name = name;
  inner.rank = static_cast<int>(own - ranks.begin());
  inner.size = static_cast<int>(ranks.size());
  if (leader) return host(std::move(*point), std::move(inner));
  const std::string& place = places[static_cast<std::size_t>(ranks.front())];
  const std::size_t space = place.find(' ');
  return join(place.substr(0, space), static_cast<uint16_t>(std::stoi(place.substr(space + 1))), std::move(inner));
}

std::vector<torch::Tensor> RankGroup::all_gather(const torch::Tensor& tensor) {
  check_on_cpu(tensor, "all_gather");
  const torch::Tensor mine = tensor.detach().contiguous();
  std::vector<torch::Tensor> gathered(static_cast<std::size_t>(size()));
  std::vector<RankLinks::Piece> out(gathered.size(), {bytes_of(mine), size_of(mine)});
  std::vector<RankLinks::Space> in(gathered.size());
  for (std::size_t r = 0; r < gathered.size(); ++r) {
    if (static_cast<int>(r) == rank()) {
      gathered[r] = mine;
    } else {
      gathered[r] = torch::empty_like(mine);
      in[r] = {mutable_bytes_of(gathered[r]), size_of(mine), nullptr};
    }
  }
  if (links_) links_->exchange("all_gather", out, in);
  return gathered;
}

void RankGroup::all_reduce_sum(torch::Tensor& tensor) {
  check_on_cpu(tensor, "all_reduce_sum");
  if (!links_) return;
  const torch::NoGradGuard no_grad;
  if (size_of(tensor) < static_cast<uint64_t>(kSmallBytes)) {
    tensor.detach().copy_(sum_in_order(all_gather(tensor)));
    return;
  }
  // Summing in a copy keeps the tensor whole when a rank fails half-way.
  torch::Tensor sum = torch::empty(tensor.sizes(), tensor.options().requires_grad(false));
  const auto [begin, end] = part_of(sum.numel(), rank(), size());
  sum.view(-1).slice(0, begin, end).copy_(sum_part(tensor));
  spread_parts(sum);
  tensor.detach().copy_(sum);
}

std::pair<int64_t, int64_t> RankGroup::part_of(int64_t elements, int rank, int size) {
  return {elements * rank / size, elements * (rank + 1) / size};
}

torch::Tensor RankGroup::sum_part(const torch::Tensor& tensor) {
  check_on_cpu(tensor, "sum_part");
  const torch::NoGradGuard no_grad;
  const torch::Tensor flat = tensor.detach().contiguous().view(-1);
  const auto part = [&](int r) {
    const auto [begin, end] = part_of(flat.numel(), r, size());
    return flat.slice(0, begin, end);
  };
  if (!links_) return flat.clone();
  const torch::Tensor own = part(rank());
  std::vector<RankLinks::Piece> out;
  std::vector<RankLinks::Space> in;
  std::vector<torch::Tensor> received;
  for (int r = 0; r < size(); ++r) {
    out.push_back({bytes_of(part(r)), size_of(part(r))});
    received.push_back(r == rank() ? own : torch::empty_like(own));
    in.push_back({mutable_bytes_of(received.back()), size_of(own), nullptr});
  }
  links_->exchange("sum_part", out, in);
  return sum_in_order(received);
}

void RankGroup::spread_parts(torch::Tensor& tensor) {
  check_on_cpu(tensor, "spread_parts");
  VIME_CHECK(tensor.is_contiguous(), "spread_parts works in place");
  if (!links_) return;
  torch::Tensor flat = tensor.detach().view(-1);
  const auto [own_begin, own_end] = part_of(flat.numel(), rank(), size());
  const torch::Tensor own = flat.slice(0, own_begin, own_end);
  std::vector<RankLinks::Piece> out(static_cast<std::size_t>(size()), {bytes_of(own), size_of(own)});
  std::vector<RankLinks::Space> in;
  for (int r = 0; r < size(); ++r) {
    const auto [begin, end] = part_of(flat.numel(), r, size());
    torch::Tensor place = flat.slice(0, begin, end);
    in.push_back({mutable_bytes_of(place), size_of(place), nullptr});
  }
  links_->exchange("spread_parts", out, in);
}

torch::Tensor RankGroup::reduce_scatter(const torch::Tensor& whole) {
  VIME_CHECK(whole.dim() > 0 && whole.size(0) % size() == 0, "reduce_scatter of " +
                                                                 std::to_string(whole.dim() > 0 ? whole.size(0) : 0) +
                                                                 " rows over " + std::to_string(size()) + " ranks");
  std::vector<int64_t> shape = whole.sizes().vec();
  shape[0] /= size();
  return sum_part(whole).view(shape);
}

void RankGroup::leave(const std::string& reason) {
  if (links_) links_->leave(reason);
}

bool RankGroup::broken() const {
  return links_ && links_->broken();
}

void RankGroup::exchange(const std::string& operation, const std::vector<RankLinks::Piece>& out,
                         const std::vector<RankLinks::Space>& in) {
  if (links_) links_->exchange(operation, out, in);
}

void RankGroup::broadcast(torch::Tensor& tensor, int root) {
  check_on_cpu(tensor, "broadcast");
  if (!links_) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor data = tensor.detach().contiguous();
  std::vector<RankLinks::Piece> out(static_cast<std::size_t>(size()));
  std::vector<RankLinks::Space> in(out.size());
  if (rank() == root) {
    for (auto& piece : out) piece = {bytes_of(data), size_of(data)};
  } else {
    in[static_cast<std::size_t>(root)] = {mutable_bytes_of(data), size_of(data), nullptr};
  }
  links_->exchange("broadcast from " + std::to_string(root), out, in);
  if (rank() != root && !data.is_same(tensor)) tensor.detach().copy_(data);
}

void RankGroup::barrier() {
  if (!links_) return;
  const auto count = static_cast<std::size_t>(size());
  links_->exchange("barrier", std::vector<RankLinks::Piece>(count), std::vector<RankLinks::Space>(count));
}

std::vector<std::string> RankGroup::all_gather_strings(const std::string& mine) {
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  std::vector<RankLinks::Piece> out(texts.size(), {reinterpret_cast<const std::byte*>(mine.data()), mine.size()});
  std::vector<RankLinks::Space> in(texts.size());
  for (std::size_t r = 0; r < texts.size(); ++r) in[r].text = &texts[r];
  if (links_) links_->exchange("all_gather_strings", out, in);
  texts[static_cast<std::size_t>(rank())] = mine;
  return texts;
}

std::vector<std::string> RankGroup::gather_strings(const std::string& mine, int root) {
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  std::vector<RankLinks::Piece> out(texts.size());
  std::vector<RankLinks::Space> in(texts.size());
  out[static_cast<std::size_t>(root)] = {reinterpret_cast<const std::byte*>(mine.data()), mine.size()};
  for (std::size_t r = 0; r < texts.size(); ++r) in[r].text = &texts[r];
  if (links_) links_->exchange("gather_strings to " + std::to_string(root), out, in);
  if (rank() != root) return {};
  texts[static_cast<std::size_t>(root)] = mine;
  return texts;
}

std::string RankGroup::broadcast_string(const std::string& text, int root) {
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  std::vector<RankLinks::Piece> out(texts.size());
  std::vector<RankLinks::Space> in(texts.size());
  if (rank() == root) {
    for (auto& piece : out) piece = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }
  for (std::size_t r = 0; r < texts.size(); ++r) in[r].text = &texts[r];
  if (links_) links_->exchange("broadcast_string from " + std::to_string(root), out, in);
  return rank() == root ? text : texts[static_cast<std::size_t>(root)];
}

}  // namespace vime::model
