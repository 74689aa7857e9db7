#include "loop/run.hpp"

#include <cstdio>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "loop/closing.hpp"
#include "loop/experiment.hpp"
#include "loop/processes.hpp"
#include "report/progress_line.hpp"
#include "report/records.hpp"
#include "report/summary.hpp"
#include "spec/differences.hpp"
#include "spec/load.hpp"
#include "spec/plan_view.hpp"
#include "spec/print.hpp"

namespace vime::loop {
namespace {

struct Outcome {
  report::Summary summary;
  std::vector<double> rewards;
};

// The checkpoint to go on from, when that was asked for and there is one.
std::optional<Checkpoint> checkpoint_of(const RunOptions& options) {
  if (!options.resume) return std::nullopt;
  if (options.spec.debug.rollout_only) {
    throw Error(ErrorKind::refused, "--resume needs checkpoints, and debug.rollout_only writes none");
  }
  std::vector<std::string> notes;
  const std::optional<Checkpoint> found = newest_checkpoint(options.run_dir, notes);
  for (const std::string& note : notes) log::warning("loop", note);
  if (!found && !notes.empty()) {
    throw Error(ErrorKind::refused, "--resume: none of the checkpoints in " + options.run_dir.string() + " is whole",
                "repair one, or remove checkpoints/ to begin at the start");
  }
  if (!found) log::info("loop", "no checkpoint in " + options.run_dir.string() + ": beginning at the start");
  return found;
}

bool is_complete(const RunOptions& options, const Checkpoint& from) {
  if (from.state.step < options.spec.rollout.num_rollout) return false;
  std::error_code ignored;
  const fs::path summary = options.run_dir / "summary.json";
  if (!fs::exists(summary, ignored)) return false;
  const Json json = try_parse_json(read_file(summary));
  return json.is_object() && json.value("status", Json()) == "ok";
}

Prepared prepare_run(const RunOptions& options, const std::optional<Checkpoint>& from) {
  Prepared prepared = prepare(options.spec, from ? from->run_id : random_token());
  if (options.spec.debug.load_rollout) {
    require_rollouts(*options.spec.debug.load_rollout, options.spec.rollout.num_rollout);
  }
  if (options.spec.debug.save_rollout && !from) require_no_rollouts(*options.spec.debug.save_rollout);
  if (from) {
    require_same(*from, identity_of(prepared));
    prepared.checkpoint = from->folder;
  }
  return prepared;
}

// After an interruption or a failure, what was trained is kept where the trainers can still say it.
void save_what_there_is(Experiment& experiment, Processes& processes) {
  try {
    processes.supervisor().heed_interrupts(false);
    experiment.save_unfinished();
  } catch (const Error& error) {
    log::warning("loop", error.within("no checkpoint of the last trained step could be written").what());
  }
}

// Starts the processes, runs, ends them; the first error of all this is the run's.
Outcome run_processes(Prepared& prepared, const RunDirectory& directory, const RunOptions& options,
                      report::ProgressLine* progress, const std::optional<Checkpoint>& from) {
  report::EventLog events(directory.events(), utc_now);
  report::MetricsWriter metrics(directory.metrics());
  const std::vector<Json> earlier = directory.rewind_metrics(from ? from->state.step : 0);
  directory.remove_checkpoints_after(from ? from->state.step : 0);
  Outcome outcome;
  std::optional<Processes> processes;
  std::optional<Experiment> experiment;
  std::optional<Error> failure;
  try {
    events.write(
        from ? "run_resumed" : "run_started",
        {{"run_id", prepared.run_id}, {"attempt", directory.attempt()}, {"step", from ? from->state.step : 0}});
    processes.emplace(prepared, directory, options.vime_binary,
                      [&](const std::string& kind, const Json& fields) { events.write(kind, fields); });
    experiment.emplace(prepared, directory, *processes, metrics, progress, from, earlier);
    experiment->execute();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(ErrorKind::internal, error.what(), "this is a bug in vime");
  }
  if (experiment) {
    if (failure) save_what_there_is(*experiment, *processes);
    outcome.summary = experiment->summary();
    outcome.rewards = experiment->rewards();
  }
  outcome.summary.error = failure;
  if (processes) processes->shutdown();
  try {
    events.write("run_ended", {{"status", report::status(outcome.summary)}});
  } catch (const Error& error) {
    log::error("loop", error.what());
    if (!outcome.summary.error) outcome.summary.error = error;
  }
  return outcome;
}

// "trainer.lr: 0.001 -> 0.002" for every key whose value is another than that of the attempt before.
void tell_changes(const fs::path& before, const spec::ExperimentSpec& now) {
  try {
    for (const spec::Difference& one : spec::differences(spec::load_resolved(before), now))
      log::info("loop", "changed since: " + one.key + ": " + one.before + " -> " + one.now);
  } catch (const Error& error) {
    log::warning("loop", error.within("the spec of the attempt before cannot be compared with this one").what());
  }
}

void write_records(const Prepared& prepared, const RunDirectory& directory, const spec::ExperimentSpec& spec) {
  const std::string yaml = spec::to_yaml(spec);
  std::error_code ignored;
  if (fs::exists(directory.spec(), ignored)) tell_changes(directory.spec(), spec);
  write_file_atomic(directory.spec(), yaml);
  write_file_atomic(directory.logs() / "spec.yaml", yaml);  // this attempt's, when a later one has another
  const spec::ModelPlan model = spec::model_plan(spec, prepared.config);
  write_file_atomic(directory.plan(), spec::plan_json(spec, prepared.plan, model, true).dump(2) + "\n");
}

}  // namespace

int execute_run(const RunOptions& options) {
  const auto start = SteadyClock::now();
  const std::optional<Checkpoint> from = checkpoint_of(options);
  if (from && is_complete(options, *from)) {
    log::info("loop", "nothing to do: " + options.run_dir.string() + " has all its " +
                          std::to_string(options.spec.rollout.num_rollout) + " steps (rollout.num_rollout)");
    return 0;
  }
  if (from) log::info("loop", "going on from " + from->folder.string());
  Prepared prepared = prepare_run(options, from);
  const RunDirectory directory(options.run_dir,
                               options.resume ? RunDirectory::Existing::go_on : RunDirectory::Existing::refuse);
  std::error_code ignored;
  fs::remove(directory.summary(), ignored);  // an earlier attempt's says nothing of this one
  log::tee_to((directory.logs() / "driver.log").string());
  write_records(prepared, directory, options.spec);
  for (const std::string& note : prepared.notes) log::info("loop", note);
  if (prepared.prompts_too_long > 0) {
    log::warning("loop", std::to_string(prepared.prompts_too_long) +
                             " prompts are over rollout_max_prompt_len and are left out");
  }
  std::optional<report::ProgressLine> progress;
  if (!options.quiet) {
    progress.emplace(report::progress_options_for_stderr(), report::write_to_stderr);
    progress->attach_log();
  }
  Outcome outcome = run_processes(prepared, directory, options, progress ? &*progress : nullptr, from);
  outcome.summary.wall_time_s = seconds_since(start);
  if (progress) progress->finish();
  progress.reset();
  try {
    report::write_summary(directory.summary(), outcome.summary);
  } catch (const Error& error) {  // a full disk must not hide what filled it, or what else went wrong
    log::error("loop", error.what());
    if (!outcome.summary.error) outcome.summary.error = error;
  }
  if (!options.quiet) print_closing(outcome.summary, outcome.rewards, prepared.parts, directory);
  if (outcome.summary.error) log::error("loop", outcome.summary.error->what());
  if (outcome.summary.error && fs::exists(directory.checkpoints() / "latest", ignored)) {
    log::info("loop", "the same command with --resume --run-dir " + directory.root().string() + " goes on from " +
                          fs::read_symlink(directory.checkpoints() / "latest").string());
  }
  return report::exit_status(outcome.summary);
}

}  // namespace vime::loop
