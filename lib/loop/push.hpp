// One weight update of all engines: pause -> trainer ranks push version v -> every engine says v (and, when asked,
// holds the trainer's bytes) -> commit -> resume. The version is committed only after every engine has proved it.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "fleet/fleet.hpp"
#include "loop/trainer_group.hpp"
#include "weights/version.hpp"

namespace vime::loop {

struct PushReport {
  int64_t version = 0;
  double pause_s = 0.0;    // first engine paused to last engine resumed
  double prepare_s = 0.0;  // trainer work outside of the pause
  uint64_t extra_bytes = 0;
};

class WeightPush {
 public:
  WeightPush(fleet::Fleet& fleet, TrainerGroup& trainers, weights::VersionLedger ledger, bool compare_contents);

  // Error{process_failed} when an engine failed during the transfer, Error{check_failed} when one is on another version
  // or holds other bytes than the trainer. Engines stay paused then: what they hold is not known.
  PushReport run();
  int64_t committed() const { return ledger_.committed(); }

 private:
  void compare(const std::vector<Json>& replies);

  fleet::Fleet& fleet_;
  TrainerGroup& trainers_;
  weights::VersionLedger ledger_;
  bool compare_contents_;
  std::set<int> initialised_;  // engines whose transfer channel exists
};

}  // namespace vime::loop
