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

ShardStore::ShardStore(arch::ArenaLayout layout, std::byte* arena, bool tied_embeddings)
    : layout_(std::move(layout)), arena_(arena), tied_embeddings_(tied_embeddings) {
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

std::vector<uint64_t> HostShardStore::checksums() {
  std::vector<uint64_t> sums;
  for (const arch::ArenaEntry& entry : layout().entries) {
    sums.push_back(weights::part_checksum(entry.parameter.full, entry.shard.dim, entry.shard.begin, entry.shard.end,
                                          arena() + entry.offset));
  }
  return sums;
}

DeviceShardStore::Plan DeviceShardStore::make_plan(const weights::Bucket& bucket, const std::byte* base) const {
  Plan plan;
  plan.found = find(bucket);
  std::vector<gpu::Copy> copies;
  for (std::size_t i = 0; i < plan.found.size(); ++i) {
    if (plan.found[i] < 0) continue;
    const weights::BucketEntry& entry = bucket.entries[i];
    const arch::ArenaEntry& own = layout().entries[static_cast<std::size_t>(plan.found[i])];
    copies.push_back(
        copy_of_part(base + entry.offset, entry.info.dtype, own.parameter.full, own.shard, arena() + own.offset));
  }
  plan.copies = std::make_unique<gpu::Copies>(copies);
  return plan;
}

void DeviceShardStore::take(const weights::Bucket& bucket, const std::byte* base) {
  Plan* plan = nullptr;
  if (bucket.key.empty()) {
    plan = &passing_.emplace_back(make_plan(bucket, base));
  } else {
    if (plans_.size() > kMostPlans) {
      wait();
      plans_.clear();
    }
    auto found = plans_.find({bucket.key, base});
    if (found == plans_.end()) found = plans_.emplace(std::pair(bucket.key, base), make_plan(bucket, base)).first;
    plan = &found->second;
  }
  plan->copies->run(stream_.get());
  mark(plan->found);
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
