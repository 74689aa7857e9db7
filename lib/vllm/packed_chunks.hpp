// How vLLM cuts a list of tensors into buffers. Sender and worker each walk the list by the same rule and agree without
// a word, so the rules here are vLLM's, to the byte: tensors lie one after the other, without padding, in the request's
// order; the cuts begin anew with each /update_weights. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.hpp"

namespace vime::vllm {

struct PackedChunk {
  std::size_t first = 0;          // index of its first tensor
  std::vector<uint64_t> offsets;  // of each tensor, in bytes from the chunk's start
  uint64_t bytes = 0;
};

// NCCL: a chunk ends with the tensor that brings it above buffer_bytes, so it can be larger than that by one tensor.
// Each chunk is one broadcast; one of 0 bytes too.
std::vector<PackedChunk> nccl_chunks(std::span<const tensor::TensorInfo> tensors, uint64_t buffer_bytes);

// CUDA IPC: a chunk ends before the tensor that would bring it above buffer_bytes; a larger tensor is alone. Each chunk
// is one request of its own.
std::vector<PackedChunk> ipc_chunks(std::span<const tensor::TensorInfo> tensors, uint64_t buffer_bytes);

// Whether every offset is a multiple of its tensor's element size; a worker cannot read a tensor where it is not.
bool is_aligned(std::span<const tensor::TensorInfo> tensors, std::span<const PackedChunk> chunks);

// Indices of the tensors in an order that is aligned however it is cut: by falling element size, otherwise as they are.
// Workers load layer by layer, so an order that is_aligned already is the better one.
std::vector<std::size_t> aligned_order(std::span<const tensor::TensorInfo> tensors);

}  // namespace vime::vllm
