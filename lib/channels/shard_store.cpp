#include "channels/shard_store.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "channels/shard_copies.hpp"
#include "weights/checksum.hpp"

namespace vime::channels {
namespace {

// More than any push has buckets: what is behind it are plans for memory that is not used any more.
constexpr std::size_t kMostPlans = 4096;

}  // namespace

ShardStore::ShardStore(arch::ArenaLayout layout, std::byte* arena, bool tied_embeddings, TrainerLayouts trainer_layouts)
    : layout_(std::move(layout)),
      arena_(arena),
      tied_embeddings_(tied_embeddings),
      trainer_layouts_(std::move(trainer_layouts)) {
  for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
    entries_[layout_.entries[i].parameter.full.name] = static_cast<int64_t>(i);
  }
  arrived_.resize(layout_.entries.size());
}

void ShardStore::start() {
  std::fill(arrived_.begin(), arrived_.end(), false);
}

std::vector<int64_t> ShardStore::find(const weights::Bucket& bucket) const {
  std::vector<int64_t> found;
  found.reserve(bucket.entries.size());
  for (const weights::BucketEntry& entry : bucket.entries) {
    const std::string& name = entry.info.name;
    const auto own = entries_.find(name);
    if (own == entries_.end()) {
      if (!tied_embeddings_ || name != "lm_head.weight") {
        throw Error(ErrorKind::refused, "the model has no parameter \"" + name + "\"");
      }
      found.push_back(-1);
      continue;
    }
    const tensor::TensorInfo& full = layout_.entries[static_cast<std::size_t>(own->second)].parameter.full;
    if (full.shape != entry.info.shape) {
      throw Error(ErrorKind::refused, name + ": expected shape " + tensor::shape_text(full.shape) + ", found " +
                                          tensor::shape_text(entry.info.shape));
    }
    found.push_back(own->second);
  }
  return found;
}

void ShardStore::mark(const std::vector<int64_t>& found) {
  for (const int64_t entry : found) {
    if (entry >= 0) arrived_[static_cast<std::size_t>(entry)] = true;
  }
}

const ShardSources& ShardStore::sources_in(const weights::Bucket& bucket, const weights::ReplicaMemory& replica) {
  VIME_CHECK(!bucket.entries.empty(), "no tensors");
  const tensor::DType dtype = bucket.entries.front().info.dtype;
  for (const weights::BucketEntry& entry : bucket.entries) {
    if (entry.info.dtype == dtype) continue;
    throw Error(ErrorKind::refused, entry.info.name +
                                        " has another dtype than the tensors before it: shards of mixed dtypes are not "
                                        "read from a trainer's memory");
  }
  const int stages = static_cast<int>(replica.ranks.size()), tp_size = static_cast<int>(replica.ranks.front().size());
  std::unique_ptr<ShardSources>& sources = sources_[{dtype, tp_size, stages, replica.nearest}];
  if (!sources) sources = std::make_unique<ShardSources>(trainer_layouts_(dtype, tp_size, stages), replica.nearest);
  for (int stage = 0; stage < stages; ++stage) {
    for (int rank = 0; rank < tp_size; ++rank) {
      const uint64_t expected = sources->layout({stage, rank}).total_bytes;
      const uint64_t found = of_rank(replica.ranks, {stage, rank}).bytes;
      if (found == expected) continue;
      throw Error(ErrorKind::refused, "the weights of stage " + std::to_string(stage) + ", tensor-parallel rank " +
                                          std::to_string(rank) + ": expected " + std::to_string(expected) +
                                          " bytes, found " + std::to_string(found));
    }
  }
  return *sources;
}

std::vector<ShardStore::Piece> ShardStore::pieces(const ShardSources& sources, const std::vector<int64_t>& found,
                                                  const weights::ReplicaMemory& replica) const {
  std::vector<Piece> pieces;
  for (const int64_t entry : found) {
    if (entry < 0) continue;
    const arch::ArenaEntry& own = layout_.entries[static_cast<std::size_t>(entry)];
    for (const ShardSource& source : sources.of(own.parameter, own.shard)) {
      const std::byte* const arena = of_rank(replica.ranks, source.rank).data;
      pieces.push_back({entry, &source.entry->shard, arena + source.entry->offset});
    }
  }
  return pieces;
}

std::vector<std::string> ShardStore::missing() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    if (!arrived_[i]) names.push_back(layout_.entries[i].parameter.full.name);
  }
  return names;
}

void HostShardStore::take(const weights::Bucket& bucket, const std::byte* base) {
  const std::vector<int64_t> found = find(bucket);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] < 0) continue;
    const weights::BucketEntry& entry = bucket.entries[i];
    const arch::ArenaEntry& own = layout().entries[static_cast<std::size_t>(found[i])];
    const std::byte* bytes = base + entry.offset;
    if (entry.info.dtype != own.parameter.full.dtype) bytes = convert_({entry.info, bytes}, own.parameter.full.dtype);
    arch::copy_shard(bytes, own.parameter.full, own.shard, arena() + own.offset);
  }
  mark(found);
}

void HostShardStore::take_shards(const weights::Bucket& bucket, const weights::ReplicaMemory& replica) {
  const ShardSources& sources = sources_in(bucket, replica);
  const std::vector<int64_t> found = find(bucket);
  for (const Piece& piece : pieces(sources, found, replica)) {
    const arch::ArenaEntry& own = layout().entries[static_cast<std::size_t>(piece.entry)];
    const tensor::TensorInfo& full = own.parameter.full;
    const tensor::TensorInfo sent{full.name, bucket.entries.front().info.dtype, piece.shard->shape};
    const std::byte* bytes = piece.bytes;
    if (sent.dtype != full.dtype) bytes = convert_({sent, bytes}, full.dtype);
    arch::copy_overlap(full, *piece.shard, bytes, own.shard, arena() + own.offset);
  }
  mark(found);
}

std::vector<uint64_t> HostShardStore::checksums() {
  std::vector<uint64_t> sums;
  for (const arch::ArenaEntry& entry : layout().entries) {
    sums.push_back(weights::part_checksum(entry.parameter.full, entry.shard.dim, entry.shard.begin, entry.shard.end,
                                          arena() + entry.offset));
  }
  return sums;
}

void DeviceShardStore::run(const weights::Bucket& bucket, const ShardSources* sources, Bases bases,
                           const MakeCopies& make) {
  const auto make_plan = [&] {
    std::vector<int64_t> found = find(bucket);
    auto copies = std::make_unique<gpu::Copies>(make(found));
    return Plan{std::move(found), std::move(copies)};
  };
  Plan* plan = nullptr;
  if (bucket.key.empty()) {
    plan = &passing_.emplace_back(make_plan());
  } else {
    if (plans_.size() > kMostPlans) {
      wait();
      plans_.clear();
    }
    std::tuple place(bucket.key, sources, std::move(bases));
    auto found = plans_.find(place);
    if (found == plans_.end()) found = plans_.emplace(std::move(place), make_plan()).first;
    plan = &found->second;
  }
  plan->copies->run(stream_.get());
  mark(plan->found);
}

void DeviceShardStore::take(const weights::Bucket& bucket, const std::byte* base) {
  run(bucket, nullptr, {base}, [&](const std::vector<int64_t>& found) {
    std::vector<gpu::Copy> copies;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] < 0) continue;
      const weights::BucketEntry& entry = bucket.entries[i];
      const arch::ArenaEntry& own = layout().entries[static_cast<std::size_t>(found[i])];
      const tensor::TensorInfo& full = own.parameter.full;
      copies.push_back(copy_of_overlap(base + entry.offset, entry.info.dtype, arch::whole_of(full, own.shard), full,
                                       own.shard, arena() + own.offset));
    }
    return copies;
  });
}

void DeviceShardStore::take_shards(const weights::Bucket& bucket, const weights::ReplicaMemory& replica) {
  const ShardSources& sources = sources_in(bucket, replica);
  Bases bases;
  for (const auto& of_stage : replica.ranks) {
    for (const weights::SharedMemory& rank : of_stage) bases.push_back(rank.data);
  }
  run(bucket, &sources, std::move(bases), [&](const std::vector<int64_t>& found) {
    std::vector<gpu::Copy> copies;
    for (const Piece& piece : pieces(sources, found, replica)) {
      const arch::ArenaEntry& own = layout().entries[static_cast<std::size_t>(piece.entry)];
      copies.push_back(copy_of_overlap(piece.bytes, bucket.entries.front().info.dtype, *piece.shard, own.parameter.full,
                                       own.shard, arena() + own.offset));
    }
    return copies;
  });
}

void DeviceShardStore::wait() {
  stream_.synchronize();
  passing_.clear();
}

std::vector<uint64_t> DeviceShardStore::checksums() {
  wait();
  return part_checksums(layout(), arena());
}

}  // namespace vime::channels
