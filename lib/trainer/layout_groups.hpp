// The process groups of one trainer rank in its layout. Which rank belongs where comes from placement; here the ranks
// meet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/rank_group.hpp"
#include "placement/placement.hpp"
#include "trainer/pipeline.hpp"

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
  std::shared_ptr<model::RankGroup> slot;  // of the engine that shares this rank's device; null without one

  // A rank that cannot go on closes its groups, so that no other waits for it.
  void leave(const std::string& reason) const;
  // Whether a group failed because another rank left or did not come.
  bool broken() const;

  Pipeline pipeline() const { return {previous, next, stages->size() - 1 - stages->rank()}; }
};

// Collective over `world`: every rank of the plan calls it. Waits as long as the world's timeout for the others.
LayoutGroups join_layout(std::shared_ptr<model::RankGroup> world, const placement::Plan& plan, bool tied_embeddings);

}  // namespace vime::trainer
