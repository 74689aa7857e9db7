// Collectives on CPU tensors and strings between the ranks of a group (trainer ranks, workers of an engine, a slot).
// LibTorch's gloo is not used: its headers are not part of every LibTorch, and its collectives are slow when ranks
// outnumber cores. All ranks call the same operations in the same order; sums are rank 0 + rank 1 + ..., on every rank
// the same bits. One thread at a time. Every call blocks at most the membership's timeout, then Error{process_failed}
// names group, rank and operation.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "model/rank_links.hpp"

namespace vime::model {

class RankGroup {
 public:
  // Rank 0, and the other ranks; both return when all are linked.
  static std::shared_ptr<RankGroup> host(MeetingPoint point, Membership membership);
  static std::shared_ptr<RankGroup> join(const std::string& address, uint16_t port, Membership membership);
  // A group of one rank, which needs no connection.
  static std::shared_ptr<RankGroup> alone(const std::string& name);
  // `ranks` of this group as a group of their own, numbered in the order given; null on the ranks that are not in it.
  // Collective: every rank of this group calls it, with the same arguments.
  std::shared_ptr<RankGroup> subgroup(const std::string& name, const std::vector<int>& ranks);

  int rank() const { return membership_.rank; }
  int size() const { return membership_.size; }
  const std::string& name() const { return membership_.name; }

  // Tensors have the same shape and dtype on every rank and lie on the CPU.
  void all_reduce_sum(torch::Tensor& tensor);                          // in place
  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor);  // in rank order
  void broadcast(torch::Tensor& tensor, int root);                     // in place
  void barrier();

  std::vector<std::string> all_gather_strings(const std::string& mine);        // in rank order, of any length
  std::vector<std::string> gather_strings(const std::string& mine, int root);  // empty on the other ranks
  std::string broadcast_string(const std::string& text, int root);

 private:
  RankGroup(Membership membership, std::unique_ptr<RankLinks> links);
  void sum_small(torch::Tensor& tensor);
  void sum_large(torch::Tensor& tensor);

  Membership membership_;
  std::unique_ptr<RankLinks> links_;  // null when alone
};

}  // namespace vime::model
