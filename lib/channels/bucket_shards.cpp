#include "channels/bucket_shards.hpp"

#include <algorithm>
#include <utility>

namespace vime::channels {

BucketShards::BucketShards(std::vector<std::vector<arch::ArenaLayout>> layouts) : layouts_(std::move(layouts)) {
  for (const std::vector<arch::ArenaLayout>& of_stage : layouts_) {
    std::vector<Owned>& ranks = owned_.emplace_back();
    for (const arch::ArenaLayout& layout : of_stage) {
      Owned& owned = ranks.emplace_back();
      for (const arch::ArenaEntry& entry : layout.entries) {
        if (entry.shard.owner()) owned[entry.parameter.full.name] = &entry;
      }
    }
  }
}

std::vector<BucketShards::Part> BucketShards::parts_of(const weights::Bucket& bucket, std::size_t stage,
                                                       std::size_t tp_rank) const {
  const Owned& owned = owned_[stage][tp_rank];
  std::vector<Part> parts;
  for (const weights::BucketEntry& wanted : bucket.entries) {
    if (const auto found = owned.find(wanted.info.name); found != owned.end()) {
      parts.push_back({found->second, wanted.offset});
    }
  }
  return parts;
}

BucketShards::Range BucketShards::stage_range(const weights::Bucket& bucket, std::size_t stage) const {
  Range range{bucket.bytes, 0};
  for (const Part& part : parts_of(bucket, stage, 0)) {  // the first rank owns a part of every tensor
    range.begin = std::min(range.begin, part.offset);
    range.end = std::max(range.end, part.offset + part.entry->parameter.full.bytes());
  }
  range.end = std::max(range.begin, range.end);
  return range;
}

}  // namespace vime::channels
