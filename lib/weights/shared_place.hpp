// What a rank says of its memory to the worker of an engine that reads it, and its form in requests.
#pragma once

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

// The weights of all ranks of a replica, in shards; one of the ranks is on the reader's own device.
struct ReplicaPlaces {
  std::vector<std::vector<SharedPlace>> ranks;  // [stage][tensor-parallel rank], as many ranks on every stage
  int nearest_stage = 0;
  int nearest_tp_rank = 0;
};

Json to_json(const SharedPlace& place);      // {"handle", "offset", "bytes"}
Json to_json(const ReplicaPlaces& replica);  // {"shards": [[place, ...], ...], "nearest": [stage, rank]}
// `where`: of errors. Error{refused} for anything else than to_json() gives.
SharedPlace parse_shared_place(const Json& json, const std::string& where);
ReplicaPlaces parse_replica_places(const Json& json, const std::string& where);

}  // namespace vime::weights
