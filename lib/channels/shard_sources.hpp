// Where a worker finds its parts of the weights in the arenas of a replica's ranks, whatever the two layouts are: each
// element in one place, in the rank's on the worker's own device wherever that has it. Immutable; any thread.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arch/parameters.hpp"
#include "weights/shared_place.hpp"

namespace vime::channels {

using weights::OfRanks;
using weights::RankPlace;

struct ShardSource {
  RankPlace rank;
  const arch::ArenaEntry* entry = nullptr;  // of that rank's arena
};

class ShardSources {
 public:
  // layouts: of the ranks' arenas.
  ShardSources(OfRanks<arch::ArenaLayout> layouts, RankPlace nearest);
  ShardSources(const ShardSources&) = delete;  // sources point into it
  ShardSources& operator=(const ShardSources&) = delete;

  const arch::ArenaLayout& layout(RankPlace rank) const { return of_rank(layouts_, rank); }
  // What together holds `part` of the parameter. Error{refused} where the ranks do not have all of it.
  std::vector<ShardSource> of(const arch::Parameter& parameter, const arch::Shard& part) const;
  // Of the whole parameter.
  std::vector<ShardSource> of_whole(const std::string& name) const;

 private:
  OfRanks<arch::ArenaLayout> layouts_;
  RankPlace nearest_;
  std::unordered_map<std::string, std::vector<ShardSource>> holders_;  // by name, in the order of stages and ranks
};

}  // namespace vime::channels
