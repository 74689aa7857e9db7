// The folder of a run: where everything goes, made once at the start. Paths only; each writer owns its file.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.hpp"

namespace vime::loop {

class RunDirectory {
 public:
  // Refuses (Error{refused}) a folder that already holds a run.
  explicit RunDirectory(fs::path root);

  const fs::path& root() const { return root_; }
  fs::path spec() const { return root_ / "spec.yaml"; }
  fs::path plan() const { return root_ / "plan.json"; }
  fs::path metrics() const { return root_ / "metrics.jsonl"; }
  fs::path events() const { return root_ / "events.jsonl"; }
  fs::path summary() const { return root_ / "summary.json"; }
  fs::path model() const { return root_ / "model"; }  // config and tokenizer for the engines
  const fs::path& logs() const { return logs_; }      // of this attempt
  fs::path rollout(int64_t rollout_id) const;         // rollouts/rollout_000012, without an extension
  fs::path checkpoint(int64_t step) const;            // checkpoints/step_000010
  fs::path checkpoint_aside(int64_t step) const;      // where it is written before it is renamed

  // Keeps the newest `keep` rollouts' files.
  void prune_rollouts(int64_t newest, int64_t keep) const;
  // Renames a finished checkpoint into place, moves `latest`, and removes all but the newest `keep`.
  void publish_checkpoint(int64_t step, int64_t keep) const;

 private:
  fs::path root_;
  fs::path logs_;
};

// runs/<name>-<UTC date and time>, in the current folder.
fs::path default_run_dir(const std::string& name);

}  // namespace vime::loop
