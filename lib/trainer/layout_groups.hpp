// The process groups of one trainer rank in its layout. Which rank belongs where comes from placement; here the ranks
// meet.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "model/device_group.hpp"
#include "model/rank_group.hpp"
#include "placement/placement.hpp"
#include "trainer/pipeline.hpp"
#include "trainer/replicas.hpp"

namespace vime::trainer {

struct LayoutGroups {
  std::shared_ptr<model::RankGroup> world;
  std::shared_ptr<model::RankGroup> tp;
  std::shared_ptr<model::RankGroup> cp;
  // Data- and context-parallel ranks: they hold the same parameters, sum their gradients and share out the optimizer's
  // state.
  std::shared_ptr<model::RankGroup> replicas;
  std::shared_ptr<model::RankGroup> stages;          // in the stages' order
  std::shared_ptr<model::RankGroup> previous, next;  // two ranks each; null at the ends
  std::shared_ptr<model::RankGroup> ends;  // first and last stage, which share tied embeddings; null elsewhere
  // The same ranks over NCCL, where they compute on GPUs and are more than one; else null.
  std::shared_ptr<model::DeviceGroup> tp_devices, cp_devices, replica_devices, previous_devices, next_devices,
      end_devices;
  std::shared_ptr<model::RankGroup> slot;  // of the engine that shares this rank's device; null without one

  // A rank that cannot go on closes its groups, so that no other waits for it.
  void leave(const std::string& reason) const;
  // Whether a group failed because another rank left or did not come.
  bool broken() const;

  Pipeline pipeline() const;
  model::CollectivesPtr context_parallel() const { return collectives(cp, cp_devices); }
  model::CollectivesPtr tied_ends() const { return collectives(ends, end_devices); }
  ReplicasPtr sharers() const {
    return replica_devices ? replicas_over_devices(replica_devices) : replicas_over_sockets(replicas);
  }

  static model::CollectivesPtr collectives(const std::shared_ptr<model::RankGroup>& group,
                                           const std::shared_ptr<model::DeviceGroup>& devices) {
    return devices ? model::over_devices(devices) : model::over_group(group);
  }
};

// Collective over `world`: every rank of the plan calls it. Waits as long as the world's timeout for the others.
LayoutGroups join_layout(std::shared_ptr<model::RankGroup> world, const placement::Plan& plan, bool tied_embeddings);
// On GPUs, after that: joins the same groups over NCCL. Collective over the world; waits at most `timeout` for each.
void join_devices(LayoutGroups& groups, torch::Device device, std::chrono::milliseconds timeout);

}  // namespace vime::trainer
