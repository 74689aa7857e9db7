#include "channels/shard_sources.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace vime::channels {

ShardSources::ShardSources(OfRanks<arch::ArenaLayout> layouts, RankPlace nearest)
    : layouts_(std::move(layouts)), nearest_(nearest) {
  for (std::size_t stage = 0; stage < layouts_.size(); ++stage) {
    for (std::size_t rank = 0; rank < layouts_[stage].size(); ++rank) {
      for (const arch::ArenaEntry& entry : layouts_[stage][rank].entries) {
        holders_[entry.parameter.full.name].push_back({{static_cast<int>(stage), static_cast<int>(rank)}, &entry});
      }
    }
  }
}

std::vector<ShardSource> ShardSources::of(const arch::Parameter& parameter, const arch::Shard& part) const {
  std::vector<ShardSource> sources;
  uint64_t found = 0;
  if (const auto holders = holders_.find(parameter.full.name); holders != holders_.end()) {
    for (const ShardSource& holder : holders->second) {
      const arch::Shard& shard = holder.entry->shard;
      const uint64_t shared = arch::overlap_of(parameter.full, shard, part).elements();
      if (shared == 0) continue;
      // Copies of a part are held whole: two shards begin at the same place or have nothing in common.
      const auto same = std::find_if(sources.begin(), sources.end(),
                                     [&](const ShardSource& other) { return other.entry->shard.begin == shard.begin; });
      if (same == sources.end()) {
        sources.push_back(holder);
        found += shared;
      } else if (holder.rank == nearest_) {
        *same = holder;
      }
    }
  }
  const auto wanted = static_cast<uint64_t>(tensor::element_count(part.shape));
  if (found != wanted) {
    throw Error(ErrorKind::refused, parameter.full.name + ": the trainer's ranks hold " + std::to_string(found) +
                                        " of the part's " + std::to_string(wanted) + " elements");
  }
  return sources;
}

std::vector<ShardSource> ShardSources::of_whole(const std::string& name) const {
  const auto holders = holders_.find(name);
  if (holders == holders_.end()) throw Error(ErrorKind::refused, name + ": no rank of the trainer has it");
  const arch::ArenaEntry& entry = *holders->second.front().entry;
  return of(entry.parameter, arch::whole_of(entry.parameter.full, entry.shard));
}

}  // namespace vime::channels
