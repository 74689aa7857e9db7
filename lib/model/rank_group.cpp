#include "model/rank_group.hpp"

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
  // Summing in a copy keeps the tensor whole when a rank fails half-way.
  torch::Tensor sum = tensor.detach().contiguous().clone();
  if (sum.nbytes() < static_cast<std::size_t>(kSmallBytes)) {
    sum_small(sum);
  } else {
    sum_large(sum);
  }
  tensor.detach().copy_(sum);
}

void RankGroup::sum_small(torch::Tensor& tensor) {
  const std::vector<torch::Tensor> parts = all_gather(tensor);
  torch::Tensor sum = parts[0].clone();
  for (std::size_t r = 1; r < parts.size(); ++r) sum.add_(parts[r]);
  tensor = sum;
}

// Every rank sums one part and gives it to all: 2/size of the bytes of gathering everything.
void RankGroup::sum_large(torch::Tensor& tensor) {
  torch::Tensor flat = tensor.view(-1);
  const auto count = static_cast<std::size_t>(size());
  const auto begin = [&](std::size_t r) { return flat.numel() * static_cast<int64_t>(r) / size(); };
  const auto part = [&](std::size_t r) { return flat.narrow(0, begin(r), begin(r + 1) - begin(r)); };
  const auto own = static_cast<std::size_t>(rank());
  std::vector<RankLinks::Piece> out(count);
  std::vector<RankLinks::Space> in(count);
  std::vector<torch::Tensor> received(count);
  for (std::size_t r = 0; r < count; ++r) {
    out[r] = {bytes_of(part(r)), size_of(part(r))};
    received[r] = r == own ? part(own) : torch::empty_like(part(own));
    in[r] = {mutable_bytes_of(received[r]), size_of(received[r]), nullptr};
  }
  links_->exchange("all_reduce_sum", out, in);
  torch::Tensor sum = received[0].clone();
  for (std::size_t r = 1; r < count; ++r) sum.add_(received[r]);
  part(own).copy_(sum);
  for (std::size_t r = 0; r < count; ++r) {
    torch::Tensor place = part(r);
    out[r] = {bytes_of(sum), size_of(sum)};
    in[r] = {mutable_bytes_of(place), size_of(place), nullptr};
  }
  links_->exchange("all_reduce_sum, second half", out, in);
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
