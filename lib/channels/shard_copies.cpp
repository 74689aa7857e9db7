#include "channels/shard_copies.hpp"

#include "base/error.hpp"
#include "gpu/streams.hpp"

namespace vime::channels {
namespace {

gpu::Cast cast_between(tensor::DType from, tensor::DType to, const std::string& name) {
  if (from == to) return gpu::Cast::none;
  if (from == tensor::DType::f32 && to == tensor::DType::bf16) return gpu::Cast::f32_to_bf16;
  if (from == tensor::DType::bf16 && to == tensor::DType::f32) return gpu::Cast::bf16_to_f32;
  throw Error(ErrorKind::refused, name + ": sent as " + tensor::dtype_name(from) +
                                      ", which a GPU worker does not turn into " + tensor::dtype_name(to));
}

}  // namespace

gpu::Copy copy_of_overlap(const std::byte* from_bytes, tensor::DType dtype, const arch::Shard& from,
                          const tensor::TensorInfo& own, const arch::Shard& to, std::byte* to_bytes) {
  const arch::Overlap overlap = arch::overlap_of(own, from, to);
  const arch::Overlap in_full = arch::overlap_of(own, from, arch::whole_of(own, from));
  const uint64_t from_element = tensor::element_bytes(dtype), to_element = tensor::element_bytes(own.dtype);
  gpu::Copy copy;
  copy.from = from_bytes + overlap.from * from_element;
  copy.to = to_bytes + overlap.to * to_element;
  copy.row_bytes = overlap.row * from_element;
  copy.rows = overlap.rows;
  copy.from_pitch = overlap.from_pitch * from_element;
  copy.to_pitch = overlap.to_pitch * to_element;
  copy.cast = cast_between(dtype, own.dtype, own.name);
  copy.element_bytes = static_cast<int>(from_element);
  copy.first_index = in_full.to + overlap.from;
  copy.index_pitch = in_full.to_pitch;
  return copy;
}

gpu::Copy copy_into_whole(const std::byte* local, const tensor::TensorInfo& info, const arch::Shard& shard,
                          std::byte* full) {
  return copy_of_overlap(local, info.dtype, shard, info, arch::whole_of(info, shard), full);
}

gpu::Copy sum_of_part(const std::byte* local, const tensor::TensorInfo& info, const arch::Shard& shard) {
  gpu::Copy copy = copy_of_overlap(local, info.dtype, shard, info, shard, nullptr);
  copy.to = nullptr;
  copy.to_pitch = 0;
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
