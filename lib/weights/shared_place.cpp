#include "weights/shared_place.hpp"

#include "base/error.hpp"

namespace vime::weights {

Json to_json(const SharedPlace& place) {
  return {{"handle", place.handle}, {"offset", place.offset}, {"bytes", place.bytes}};
}

Json to_json(const ReplicaPlaces& replica) {
  Json shards = Json::array();
  for (const auto& of_stage : replica.ranks) {
    Json& places = shards.emplace_back(Json::array());
    for (const SharedPlace& place : of_stage) places.push_back(to_json(place));
  }
  return {{"shards", std::move(shards)}, {"nearest", {replica.nearest.stage, replica.nearest.tp_rank}}};
}

SharedPlace parse_shared_place(const Json& json, const std::string& where) {
  const auto number = [&](const char* key) {
    const int64_t value = json_int(json, key, where);
    if (value < 0) throw Error(ErrorKind::refused, where + ": \"" + key + "\" is " + std::to_string(value));
    return static_cast<uint64_t>(value);
  };
  return {json_string(json, "handle", where), number("offset"), number("bytes")};
}

ReplicaPlaces parse_replica_places(const Json& json, const std::string& where) {
  ReplicaPlaces replica;
  const Json& shards = json_member(json, "shards", where);
  const std::vector<int64_t> nearest = json_ints(json, "nearest", where);
  const auto refuse = [&](const char* what) { throw Error(ErrorKind::refused, where + ": " + what); };
  if (!shards.is_array() || shards.empty()) refuse("\"shards\" must be a list of stages");
  for (const Json& of_stage : shards) {
    if (!of_stage.is_array() || of_stage.empty() || of_stage.size() != shards[0].size())
      refuse("\"shards\" must have the same ranks on every stage");
    auto& places = replica.ranks.emplace_back();
    for (const Json& place : of_stage) places.push_back(parse_shared_place(place, where));
  }
  const auto below = [](int64_t number, std::size_t end) { return number >= 0 && number < static_cast<int64_t>(end); };
  if (nearest.size() != 2 || !below(nearest[0], shards.size()) || !below(nearest[1], shards[0].size()))
    refuse("\"nearest\" must be the stage and the tensor-parallel rank of one of the shards");
  replica.nearest = {static_cast<int>(nearest[0]), static_cast<int>(nearest[1])};
  return replica;
}

}  // namespace vime::weights
