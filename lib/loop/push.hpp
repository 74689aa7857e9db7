// One weight update of all engines: pause -> trainer ranks push version v -> every engine says v (and, when asked,
// holds the trainer's bytes) -> commit -> resume. The version is committed only after every engine has proved it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "fleet/fleet.hpp"
#include "loop/logprob_probe.hpp"
#include "loop/trainer_group.hpp"
#include "loop/weight_folders.hpp"
#include "weights/version.hpp"

namespace vime::loop {

struct PushOptions {
  // Engines that tell checksums of what they hold are held to the trainer's after every push.
  bool compare_contents = false;
  // Engines that do not are asked for log-probs: after the first push always, after every push when this is set.
  bool probe_always = false;
  ProbeOptions probe = {};
  // By engine: its weights are written to a folder and loaded from there. Empty: none.
  std::vector<bool> from_disk = {};
  fs::path disk_dir = {};      // see WeightFolders
  uint64_t weights_bytes = 0;  // of the model in a folder
};

struct PushReport {
  int64_t version = 0;
  double pause_s = 0.0;     // from the first engine's pause until all generate again
  double transfer_s = 0.0;  // of it, until every engine had proved the version
  double prepare_s = 0.0;   // trainer work outside of the pause
  // Of the transfer, the slowest engine's: see weights::EngineResult.
  double start_s = 0.0, update_s = 0.0, finish_s = 0.0;
  uint64_t extra_bytes = 0;
};

class WeightPush {
 public:
  WeightPush(fleet::Fleet& fleet, TrainerGroup& trainers, weights::VersionLedger ledger, PushOptions options);

  // Error{process_failed} when an engine failed during the transfer, Error{check_failed} when one is on another version
  // or holds other bytes than the trainer. Engines stay paused then: what they hold is not known.
  // `before_resume` makes them able to generate, where more than weights was taken from them.
  PushReport run(const std::function<void()>& before_resume = {});
  // When the engines generate again: Error{check_failed} when one does not compute with the weights that it was pushed.
  void check_engines();
  int64_t committed() const { return ledger_.committed(); }

 private:
  bool takes_folder(int engine) const;
  bool any_folders() const;
  void load_from(const fs::path& folder, int64_t version);
  void require_all_engines(const std::vector<Json>& replies) const;
  void compare(const std::vector<Json>& replies);
  void heed_earlier_versions();
  bool probe_is_due() const;

  fleet::Fleet& fleet_;
  TrainerGroup& trainers_;
  weights::VersionLedger ledger_;
  PushOptions options_;
  WeightFolders folders_;
  LogprobProbe probe_;
  bool probed_ = false;         // at least once
  bool trainer_asked_ = false;  // for the push that was last
  std::set<int> initialised_;   // engines whose transfer channel exists
};

}  // namespace vime::loop
