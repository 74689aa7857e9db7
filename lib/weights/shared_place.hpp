// What a rank says of its memory to the worker of an engine that reads it, and its form in requests.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::weights {

// In [offset, offset + bytes) of the memory that `handle` names.
struct SharedPlace {
  std::string handle;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// One of a replica's ranks.
struct RankPlace {
  int stage = 0;
  int tp_rank = 0;
  auto operator<=>(const RankPlace&) const = default;
};

// What each rank of a replica has: [stage][tensor-parallel rank], as many ranks on every stage.
template <typename T>
using OfRanks = std::vector<std::vector<T>>;
template <typename T>
const T& of_rank(const OfRanks<T>& ranks, RankPlace rank) {
  return ranks.at(static_cast<std::size_t>(rank.stage)).at(static_cast<std::size_t>(rank.tp_rank));
}

// The weights of all ranks of a replica, in shards.
struct ReplicaPlaces {
  OfRanks<SharedPlace> ranks;
  RankPlace nearest;  // the one on the reader's own device
};

Json to_json(const SharedPlace& place);      // {"handle", "offset", "bytes"}
Json to_json(const ReplicaPlaces& replica);  // {"shards": [[place, ...], ...], "nearest": [stage, rank]}
// `where`: of errors. Error{refused} for anything else than to_json() gives.
SharedPlace parse_shared_place(const Json& json, const std::string& where);
ReplicaPlaces parse_replica_places(const Json& json, const std::string& where);

}  // namespace vime::weights
