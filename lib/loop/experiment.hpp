// The loop itself, from the moment the processes serve: push; evaluate; then for every step generate (or load), train,
// save, push, evaluate. One thread.
#pragma once

#include <optional>
#include <vector>

#include "loop/checkpoint.hpp"
#include "loop/processes.hpp"
#include "loop/push.hpp"
#include "loop/rollouts.hpp"
#include "loop/turns.hpp"
#include "report/progress_line.hpp"
#include "report/records.hpp"
#include "report/summary.hpp"

namespace vime::loop {

class Experiment {
 public:
  // progress may be null. from: the checkpoint that `prepared.checkpoint` names; nothing: from the start.
  // earlier: the lines of metrics.jsonl before that step.
  Experiment(Prepared& prepared, const RunDirectory& directory, Processes& processes, report::MetricsWriter& metrics,
             report::ProgressLine* progress, const std::optional<Checkpoint>& from, const std::vector<Json>& earlier);

  void execute();
  // A checkpoint of the last trained step, where the ranks still hold it and none was written.
  void save_unfinished();

  report::Summary summary() const;
  const std::vector<double>& rewards() const { return rewards_; }  // mean of each rollout

 private:
  void step();
  void train(const fs::path& batch, LoopState& next);
  void finish_step();
  bool is_last() const;
  bool evaluation_is_due() const;
  void push_weights();
  void run_evaluations();
  void save();
  void show_progress();

  const Prepared& prepared_;
  const spec::ExperimentSpec& spec_;
  const RunDirectory& directory_;
  Processes& processes_;
  report::MetricsWriter& metrics_;
  report::ProgressLine* progress_;
  Identity identity_;
  WeightPush push_;
  Turns turns_;
  Rollouts rollouts_;
  LoopState state_;  // after the last step that was trained
  report::EvalHistory eval_;
  std::vector<double> rewards_;
  Json line_;                     // the present step's metrics, push and evaluation included
  bool ranks_hold_state_ = true;  // false while a step is trained, and for good where that failed
  int64_t saved_step_ = 0;
  int64_t first_step_ = 0;  // where this attempt began
  SteadyClock::time_point start_{}, step_start_{};
};

Identity identity_of(const Prepared& prepared);

}  // namespace vime::loop
