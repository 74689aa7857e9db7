#include "trainer/shared_gradients.hpp"

#include <vector>

namespace vime::trainer {
namespace {

torch::Tensor part_of(const torch::Tensor& gradient, const arch::ArenaEntry& entry) {
  const uint64_t size = tensor::element_bytes(entry.parameter.full.dtype);
  return gradient.narrow(0, static_cast<int64_t>(entry.offset / size), static_cast<int64_t>(entry.bytes / size));
}

}  // namespace

void sum_over_tensor_parallel_copies(torch::Tensor& gradient, const arch::ArenaLayout& layout, model::Collectives& tp) {
  if (tp.size() == 1) return;
  std::vector<torch::Tensor> parts;
  std::vector<int> sharers;
  for (const arch::ArenaEntry& entry : layout.entries) {
    const int count = arch::sharers_of(entry.parameter, tp.size());
    if (count == 1) continue;
    parts.push_back(part_of(gradient, entry));
    sharers.push_back(count);
  }
  const std::vector<torch::Tensor> of_ranks = tp.all_gather(torch::cat(parts));
  int64_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t count = parts[i].numel();
    const int first = tp.rank() / sharers[i] * sharers[i];
    // In rank order, so that all holders get the same bits.
    parts[i].copy_(of_ranks[static_cast<size_t>(first)].narrow(0, at, count));
    for (int rank = first + 1; rank < first + sharers[i]; ++rank) {
      parts[i].add_(of_ranks[static_cast<size_t>(rank)].narrow(0, at, count));
    }
    at += count;
  }
}

void sum_tied_embeddings(torch::Tensor& gradient, const arch::ArenaLayout& layout, model::Collectives& ends) {
  for (const arch::ArenaEntry& entry : layout.entries) {
    if (entry.parameter.place != arch::Place::embedding) continue;
    torch::Tensor part = part_of(gradient, entry);
    part.copy_(model::sum_in_order(ends.all_gather(part)));
  }
}

}  // namespace vime::trainer
