#include "trainer/layout_groups.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace vime::trainer {
namespace {

std::vector<model::RankGroup*> all_of(const LayoutGroups& groups) {
  std::vector<model::RankGroup*> all;
  for (const auto& group : {groups.world, groups.tp, groups.cp, groups.replicas, groups.stages, groups.previous,
                            groups.next, groups.ends, groups.slot}) {
    if (group) all.push_back(group.get());
  }
  return all;
}

std::vector<model::DeviceGroup*> devices_of(const LayoutGroups& groups) {
  std::vector<model::DeviceGroup*> all;
  for (const auto& group : {groups.tp_devices, groups.cp_devices, groups.replica_devices, groups.previous_devices,
                            groups.next_devices, groups.end_devices}) {
    if (group) all.push_back(group.get());
  }
  return all;
}

}  // namespace

// The sockets first: they tell the others at once, NCCL by its deadline only.
void LayoutGroups::leave(const std::string& reason) const {
  for (model::RankGroup* group : all_of(*this)) group->leave(reason);
  for (model::DeviceGroup* group : devices_of(*this)) group->leave(reason);
}

Pipeline LayoutGroups::pipeline() const {
  const int later = stages->size() - 1 - stages->rank();
  const bool on_devices = previous_devices || next_devices;
  if (!on_devices) return {previous, next, later};
  return {over_devices_between(previous_devices), over_devices_between(next_devices), later};
}

bool LayoutGroups::broken() const {
  const std::vector<model::RankGroup*> all = all_of(*this);
  const std::vector<model::DeviceGroup*> devices = devices_of(*this);
  return std::any_of(all.begin(), all.end(), [](const model::RankGroup* group) { return group->broken(); }) ||
         std::any_of(devices.begin(), devices.end(), [](const model::DeviceGroup* group) { return group->broken(); });
}

LayoutGroups join_layout(std::shared_ptr<model::RankGroup> world, const placement::Plan& plan, bool tied_embeddings) {
  const placement::TrainerRank& own = plan.ranks[static_cast<size_t>(world->rank())];
  const int stages = plan.layout.pp;
  // The ranks that share this rank's group, ascending; ranks ascend with the stage, the data- and the context-parallel
  // rank.
  const auto join = [&](const char* name, const std::function<bool(const placement::TrainerRank&)>& belongs) {
    std::vector<int> ranks;
    for (const placement::TrainerRank& rank : plan.ranks) {
      if (belongs(rank)) ranks.push_back(rank.rank);
    }
    return world->subgroup(name, ranks);
  };
  const auto same_tp = [&](const placement::TrainerRank& r) { return r.tp_rank == own.tp_rank; };
  const auto same_cp = [&](const placement::TrainerRank& r) { return r.cp_rank == own.cp_rank; };
  const auto same_dp = [&](const placement::TrainerRank& r) { return r.dp_rank == own.dp_rank; };
  const auto same_pp = [&](const placement::TrainerRank& r) { return r.pp_rank == own.pp_rank; };
  const auto same_place = [&](const placement::TrainerRank& r) { return same_tp(r) && same_cp(r) && same_dp(r); };

  LayoutGroups groups;
  groups.world = world;
  groups.tp = join("tp", [&](const placement::TrainerRank& r) { return same_cp(r) && same_dp(r) && same_pp(r); });
  groups.cp = join("cp", [&](const placement::TrainerRank& r) { return same_tp(r) && same_dp(r) && same_pp(r); });
  groups.replicas = join("dp x cp", [&](const placement::TrainerRank& r) { return same_tp(r) && same_pp(r); });
  groups.stages = join("pp", same_place);
  // Boundaries below even stages first, then those below odd ones, so that no rank is in two groups of one call.
  for (const int parity : {0, 1}) {
    const bool upper = own.pp_rank % 2 == parity;  // the earlier stage of its boundary
    const int first = upper ? own.pp_rank : own.pp_rank - 1;
    const bool exists = first >= 0 && first + 1 < stages;
    std::shared_ptr<model::RankGroup> pair = join("stage boundary", [&](const placement::TrainerRank& r) {
      return exists && same_place(r) && (r.pp_rank == first || r.pp_rank == first + 1);
    });
    if (exists) (upper ? groups.next : groups.previous) = std::move(pair);
  }
  if (tied_embeddings && stages > 1) {
    const bool at_end = own.pp_rank == 0 || own.pp_rank == stages - 1;
    groups.ends = join("tied embeddings", [&](const placement::TrainerRank& r) {
      return at_end && same_place(r) && (r.pp_rank == 0 || r.pp_rank == stages - 1);
    });
  }
  return groups;
}

void join_devices(LayoutGroups& groups, torch::Device device, std::chrono::milliseconds timeout) {
  const auto join = [&](const std::shared_ptr<model::RankGroup>& group) {
    const bool alone = !group || group->size() == 1;
    return alone ? nullptr : std::make_shared<model::DeviceGroup>(*group, device, timeout);
  };
  groups.tp_devices = join(groups.tp);
  groups.cp_devices = join(groups.cp);
  groups.replica_devices = join(groups.replicas);
  // Boundaries below even stages first: a rank that waits for its neighbour is always waited for by it.
  if (groups.stages->rank() % 2 == 0) {
    groups.next_devices = join(groups.next);
    groups.previous_devices = join(groups.previous);
  } else {
    groups.previous_devices = join(groups.previous);
    groups.next_devices = join(groups.next);
  }
  groups.end_devices = join(groups.ends);
}

}  // namespace vime::trainer
