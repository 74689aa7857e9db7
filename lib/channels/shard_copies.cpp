#include "channels/shard_copies.hpp"

#include "base/error.hpp"
#include "gpu/streams.hpp"

namespace vime::channels {
namespace {

// A shard as a matrix: `outer` stretches of `run` elements, each `stride` elements behind the last in the whole tensor.
struct Stretches {
  uint64_t outer = 1;
  uint64_t run = 1;
  uint64_t stride = 1;
  uint64_t first = 0;  // of the whole tensor's elements
};

Stretches stretches_of(const tensor::TensorInfo& info, const arch::Shard& shard) {
  Stretches stretches;
  if (info.shape.empty()) return stretches;
  const auto dim = static_cast<std::size_t>(shard.dim);
  uint64_t inner = 1;
  for (std::size_t i = 0; i < dim; ++i) stretches.outer *= static_cast<uint64_t>(info.shape[i]);
  for (std::size_t i = dim + 1; i < info.shape.size(); ++i) inner *= static_cast<uint64_t>(info.shape[i]);
  stretches.run = static_cast<uint64_t>(shard.end - shard.begin) * inner;
  stretches.stride = static_cast<uint64_t>(info.shape[dim]) * inner;
  stretches.first = static_cast<uint64_t>(shard.begin) * inner;
  return stretches;
}

gpu::Cast cast_between(tensor::DType from, tensor::DType to, const std::string& name) {
  if (from == to) return gpu::Cast::none;
  if (from == tensor::DType::f32 && to == tensor::DType::bf16) return gpu::Cast::f32_to_bf16;
  if (from == tensor::DType::bf16 && to == tensor::DType::f32) return gpu::Cast::bf16_to_f32;
  throw Error(ErrorKind::refused, name + ": sent as " + tensor::dtype_name(from) +
                                      ", which a GPU worker does not turn into " + tensor::dtype_name(to));
}

}  // namespace

gpu::Copy copy_of_part(const std::byte* full, tensor::DType dtype, const tensor::TensorInfo& own,
                       const arch::Shard& shard, std::byte* local) {
  const Stretches stretches = stretches_of(own, shard);
  const uint64_t from = tensor::element_bytes(dtype), to = tensor::element_bytes(own.dtype);
  gpu::Copy copy;
  copy.from = full + stretches.first * from;
  copy.to = local;
  copy.row_bytes = stretches.run * from;
  copy.rows = stretches.outer;
  copy.from_pitch = stretches.stride * from;
  copy.to_pitch = stretches.run * to;
  copy.cast = cast_between(dtype, own.dtype, own.name);
  copy.element_bytes = static_cast<int>(from);
  copy.first_index = stretches.first;
  copy.index_pitch = stretches.stride;
  return copy;
}

gpu::Copy copy_into_whole(const std::byte* local, const tensor::TensorInfo& info, const arch::Shard& shard,
                          std::byte* full) {
  const Stretches stretches = stretches_of(info, shard);
  const uint64_t element = tensor::element_bytes(info.dtype);
  gpu::Copy copy = sum_of_part(local, info, shard);
  copy.to = full + stretches.first * element;
  copy.to_pitch = stretches.stride * element;
  return copy;
}

gpu::Copy sum_of_part(const std::byte* local, const tensor::TensorInfo& info, const arch::Shard& shard) {
  const Stretches stretches = stretches_of(info, shard);
  const uint64_t element = tensor::element_bytes(info.dtype);
  gpu::Copy copy;
  copy.from = local;
  copy.row_bytes = stretches.run * element;
  copy.rows = stretches.outer;
  copy.from_pitch = stretches.run * element;
  copy.element_bytes = static_cast<int>(element);
  copy.first_index = stretches.first;
  copy.index_pitch = stretches.stride;
  return copy;
}

std::vector<uint64_t> part_checksums(const arch::ArenaLayout& layout, const std::byte* arena) {
  std::vector<gpu::Copy> parts;
  for (const arch::ArenaEntry& entry : layout.entries) {
    parts.push_back(sum_of_part(arena + entry.offset, entry.parameter.full, entry.shard));
  }
  const gpu::OwnedStream stream;
  gpu::Copies sums(parts, true);
  sums.run(stream.get());
  return sums.sums(stream.get());
}

}  // namespace vime::channels
