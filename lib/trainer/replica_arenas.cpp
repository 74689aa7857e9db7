#include "trainer/replica_arenas.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "channels/device_arena.hpp"
#include "gpu/device.hpp"

namespace vime::trainer {

ReplicaArenas::ReplicaArenas(const LayoutGroups& groups, const placement::Plan& plan, int rank, bool on_gpu,
                             const weights::Arena& own, uint64_t bytes) {
  const std::string place = to_json(weights::SharedPlace{own.handle(), 0, bytes}).dump();
  Json of_stage = Json::array();
  for (const std::string& text : groups.tp->all_gather_strings(place)) of_stage.push_back(parse_json(text));
  for (const std::string& text : groups.stages->all_gather_strings(of_stage.dump())) {
    std::vector<weights::SharedPlace>& ranks = places_.ranks.emplace_back();
    for (const Json& json : parse_json(text)) ranks.push_back(weights::parse_shared_place(json, "a rank's weights"));
  }
  places_.nearest = {groups.stages->rank(), groups.tp->rank()};

  const placement::TrainerRank& self = plan.ranks[static_cast<size_t>(rank)];
  const auto device_of = [&](const placement::TrainerRank& of) -> const placement::Device& {
    return plan.devices[static_cast<size_t>(of.device)];
  };
  bool reached = std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const placement::TrainerRank& other) {
    if (other.dp_rank != self.dp_rank || other.cp_rank != self.cp_rank) return true;
    return device_of(other).node == device_of(self).node && (!on_gpu || gpu::reaches(device_of(other).uuid));
  });
  if (reached && on_gpu) {
    try {
      open(own);
    } catch (const Error& error) {
      log::info("trainer",
                "rank " + std::to_string(rank) + ": the weights of other ranks are not read: " + error.message());
      reached = false;
    }
  }
  const std::vector<std::string> all = groups.world->all_gather_strings(reached ? "yes" : "no");
  readable_ = std::all_of(all.begin(), all.end(), [](const std::string& text) { return text == "yes"; });
  if (readable_) return;
  data_.clear();
  mappings_.clear();
}

void ReplicaArenas::open(const weights::Arena& own) {
  for (size_t stage = 0; stage < places_.ranks.size(); ++stage) {
    std::vector<const std::byte*>& of_stage = data_.emplace_back();
    for (size_t rank = 0; rank < places_.ranks[stage].size(); ++rank) {
      const weights::SharedPlace& place = places_.ranks[stage][rank];
      if (weights::RankPlace{static_cast<int>(stage), static_cast<int>(rank)} == places_.nearest) {
        of_stage.push_back(own.data());
        continue;
      }
      mappings_.push_back(channels::open_device_mapping(place.handle));
      of_stage.push_back(mappings_.back()->data() + place.offset);
    }
  }
}

}  // namespace vime::trainer
