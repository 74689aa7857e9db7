#include "vllm/packed_chunks.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vime::vllm {

std::vector<PackedChunk> nccl_chunks(std::span<const tensor::TensorInfo> tensors, uint64_t buffer_bytes) {
  std::vector<PackedChunk> chunks;
  PackedChunk open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    open.offsets.push_back(open.bytes);
    open.bytes += tensors[i].bytes();
    if (open.bytes > buffer_bytes) chunks.push_back(std::exchange(open, {i + 1, {}, 0}));
  }
  if (!open.offsets.empty()) chunks.push_back(std::move(open));
  return chunks;
}

std::vector<PackedChunk> ipc_chunks(std::span<const tensor::TensorInfo> tensors, uint64_t buffer_bytes) {
  std::vector<PackedChunk> chunks;
  PackedChunk open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = tensors[i].bytes();
    if (open.bytes > 0 && open.bytes + bytes > buffer_bytes) chunks.push_back(std::exchange(open, {i, {}, 0}));
    open.offsets.push_back(open.bytes);
    open.bytes += bytes;
  }
  if (!open.offsets.empty()) chunks.push_back(std::move(open));
  return chunks;
}

bool is_aligned(std::span<const tensor::TensorInfo> tensors, std::span<const PackedChunk> chunks) {
  for (const PackedChunk& chunk : chunks) {
    for (std::size_t i = 0; i < chunk.offsets.size(); ++i) {
      if (chunk.offsets[i] % tensor::element_bytes(tensors[chunk.first + i].dtype) != 0) return false;
    }
  }
  return true;
}

std::vector<std::size_t> aligned_order(std::span<const tensor::TensorInfo> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensor::element_bytes(tensors[a].dtype) > tensor::element_bytes(tensors[b].dtype);
  });
  return order;
}

}  // namespace vime::vllm
