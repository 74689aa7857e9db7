// The folder of a run: where everything goes. One vime at a time owns it (an advisory lock on the folder, which ends
// with the process). Paths only, besides what is said here; each writer owns its file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::loop {

class RunDirectory {
 public:
  enum class Existing { refuse, go_on };

  // Makes the folders and the next logs/attempt_N. Error{refused}: another vime works in it; it cannot be written; it
  // already holds a run (`refuse`).
  explicit RunDirectory(fs::path root, Existing existing = Existing::refuse);

  const fs::path& root() const { return root_; }
  fs::path spec() const { return root_ / "spec.yaml"; }
  fs::path plan() const { return root_ / "plan.json"; }
  fs::path metrics() const { return root_ / "metrics.jsonl"; }
  fs::path events() const { return root_ / "events.jsonl"; }
  fs::path summary() const { return root_ / "summary.json"; }
  fs::path model() const { return root_ / "model"; }  // config and tokenizer for the engines
  fs::path checkpoints() const { return root_ / "checkpoints"; }
  const fs::path& logs() const { return logs_; }  // of this attempt
  int attempt() const { return attempt_; }
  fs::path rollout(int64_t rollout_id) const;     // rollouts/rollout_000012, without an extension
  fs::path checkpoint(int64_t step) const;        // checkpoints/step_000010
  fs::path checkpoint_aside(int64_t step) const;  // where it is written before it is renamed

  // Keeps the newest `keep` rollouts' files.
  void prune_rollouts(int64_t newest, int64_t keep) const;
  // Renames a finished checkpoint into place, moves `latest`, and removes all but the newest `keep` and those whose
  // step is a multiple of `keep_every`.
  void publish_checkpoint(int64_t step, int64_t keep, std::optional<int64_t> keep_every) const;
  // Removes checkpoints that were never finished.
  void remove_partial_checkpoints() const;
  // Removes these too: torn ones, and those of an attempt that got further than the one which is gone on with. They
  // would pass for newer than what is written from here on.
  void remove_checkpoints_after(int64_t step) const;
  // Leaves the lines of metrics.jsonl whose step is below this one, and returns them. A torn last line goes too.
  std::vector<Json> rewind_metrics(int64_t step) const;

 private:
  void lock();
  void make_folders();

  fs::path root_;
  fs::path logs_;
  int attempt_ = 1;
  UniqueFd lock_;
};

// runs/<name>-<UTC date and time>, in the current folder.
fs::path default_run_dir(const std::string& name);
// The newest folder that default_run_dir() has named for this experiment; empty when there is none.
fs::path newest_run_dir(const std::string& name);

// Finished checkpoints of a run folder, newest first.
std::vector<fs::path> finished_checkpoints(const fs::path& run_dir);

}  // namespace vime::loop
