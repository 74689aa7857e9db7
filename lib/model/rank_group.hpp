// Collectives on CPU tensors and strings between the ranks of a group (trainer ranks, workers of an engine, a slot).
// LibTorch's gloo is not used: its headers are not part of every LibTorch, and its collectives are slow when ranks
// outnumber cores. All ranks call the same operations in the same order; sums are rank 0 + rank 1 + ..., on every rank
// the same bits. One thread at a time. Every call blocks at most the membership's timeout, then Error{process_failed}
// names group, rank and operation.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/rank_links.hpp"

namespace vime::model {

// parts[0] + parts[1] + ..., the order of every sum over ranks.
torch::Tensor sum_in_order(const std::vector<torch::Tensor>& parts);

class RankGroup {
 public:
  // Rank 0, and the other ranks; both return when all are linked.
  static std::shared_ptr<RankGroup> host(MeetingPoint point, Membership membership);
  static std::shared_ptr<RankGroup> join(const std::string& address, uint16_t port, Membership membership);
  // A group of one rank, which needs no connection.
  static std::shared_ptr<RankGroup> alone(const std::string& name);
  // A group of some of this group's ranks, numbered in the order given. Collective: every rank of this group calls it
  // at the same time, each with the ranks of the group that it is to be in, so that one call makes many groups that do
  // not overlap. Null on a rank that names a group without itself, or none.
  std::shared_ptr<RankGroup> subgroup(const std::string& name, const std::vector<int>& ranks);

  int rank() const { return membership_.rank; }
  int size() const { return membership_.size; }
  const std::string& name() const { return membership_.name; }

  // Tensors have the same shape and dtype on every rank and lie on the CPU.
  void all_reduce_sum(torch::Tensor& tensor);                          // in place
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor);  // in rank order
  void broadcast(torch::Tensor& tensor, int root);                     // in place
  void barrier();

  // A tensor's elements in one part for each rank, in rank order: parts of equal size where that divides, else as equal
  // as can be. Together the two calls are an all-reduce.
  static std::pair<int64_t, int64_t> part_of(int64_t elements, int rank, int size);  // begin, end
  torch::Tensor sum_part(const torch::Tensor& tensor);  // the sum over all ranks of this rank's part, flat
  void spread_parts(torch::Tensor& tensor);             // contiguous; each rank's part to all others, in place
  // Dim 0 in `size` equal parts: the sum over all ranks of this rank's part.
  torch::Tensor reduce_scatter(const torch::Tensor& whole);

  // out[r] to rank r, in[r] from rank r; both sides know the sizes. The own entries are not looked at.
  void exchange(const std::string& operation, const std::vector<RankLinks::Piece>& out,
                const std::vector<RankLinks::Space>& in);

  // For a rank that cannot go on: the others' waits end at once, and its own later calls fail with `reason`.
  void leave(const std::string& reason);
  bool broken() const;  // by a rank that left or did not come

  std::vector<std::string> all_gather_strings(const std::string& mine);        // in rank order, of any length
  std::vector<std::string> gather_strings(const std::string& mine, int root);  // empty on the other ranks
  std::string broadcast_string(const std::string& text, int root);

 private:
  RankGroup(Membership membership, std::unique_ptr<RankLinks> links);
  Membership membership_;
  std::unique_ptr<RankLinks> links_;  // null when alone
};

}  // namespace vime::model
