// The ranks that share their devices with one engine, as the push knows them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/rank_group.hpp"
#include "placement/placement.hpp"
#include "weights/slot_push.hpp"

namespace vime::trainer {

// The ranks of a slot. Never the trainer's tensor-parallel group, whose members may be others.
class RankSlotGroup final : public weights::SlotGroup {
 public:
  RankSlotGroup(placement::Slot slot, std::shared_ptr<model::RankGroup> group)
      : slot_(slot), group_(std::move(group)) {}
  const placement::Slot& slot() const { return slot_; }
  std::vector<std::string> gather(const std::string& mine) override { return group_->gather_strings(mine, 0); }
  void barrier() override { group_->barrier(); }

 private:
  placement::Slot slot_;
  std::shared_ptr<model::RankGroup> group_;  // the leader is its rank 0
};

}  // namespace vime::trainer
