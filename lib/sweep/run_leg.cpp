#include "sweep/run_leg.hpp"

#include <algorithm>
#include <numeric>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "loop/processes.hpp"
#include "loop/push.hpp"
#include "loop/train_figures.hpp"
#include "report/records.hpp"
#include "spec/print.hpp"
#include "sweep/compare.hpp"
#include "sweep/rank_answer.hpp"
#include "sweep/samples.hpp"

namespace vime::sweep {
namespace {

// The running processes of a leg, and the commands that a step consists of.
class LegRun {
 public:
  LegRun(const LegTask& task, const Samples& samples)
      : prepared_(task.prepared), samples_(samples), directory_(task.folder), events_(directory_.events(), utc_now) {
    write_file_atomic(directory_.spec(), spec::to_yaml(prepared_.spec));  // what the trainer ranks read
    processes_ = std::make_unique<loop::Processes>(
        prepared_, directory_, task.vime_binary,
        [this](const std::string& kind, const Json& fields) { events_.write(kind, fields); },
        proc::AgentOptions{.preload = true});  // many short-lived processes: LibTorch is loaded once a leg
    push_ = std::make_unique<loop::WeightPush>(processes_->fleet(), processes_->trainers(), weights::VersionLedger(),
                                               loop::PushOptions{.compare_contents = true});
  }

  StepRecord train(size_t step, const rollout::StepProbe& probe) {
    const std::vector<Json> replies = processes_->trainers().call_all(
        "/train", {{"batch", samples_.files[step].string()}, {"probe", rollout::to_json(probe)}});
    const loop::TrainFigures figures = loop::train_figures(replies, static_cast<int64_t>(step), {}, {});
    StepRecord record;
    record.step = static_cast<int>(step) + 1;
    record.layout = prepared_.plan.layout;
    record.loss = figures.metrics.at("train/loss");
    record.grad_norm = figures.metrics.at("train/grad_norm");
    const std::vector<int64_t>& responses = samples_.batches[step].response_lengths;
    const int64_t tokens = std::accumulate(responses.begin(), responses.end(), int64_t{0});
    for (const placement::TrainerRank& rank : prepared_.plan.ranks) {
      const std::string what = rank_name(rank) + ": answer to /train";
      const rollout::StepAnswer answer =
          rollout::parse_step_answer(json_member(replies.at(static_cast<size_t>(rank.rank)), "answer", what), what);
      record.ranks.push_back(
          rank_record(answer, prepared_.config, {rank, prepared_.plan.layout}, tokens, !probe.against.empty()));
    }
    return record;
  }

  // "versions" and "contents".
  std::vector<Check> push(size_t step) {
    const auto version = static_cast<int64_t>(step) + 1;
    Check versions{.name = "versions", .error = 0.0, .tolerance = 0.0};
    Check contents{.name = "contents", .error = 0.0, .tolerance = 0.0};
    std::string failure;
    try {
      push_->run();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::check_failed) throw;
      failure = error.message();
    }
    const std::vector<std::string> problems = weights::version_problems(version, processes_->fleet().versions());
    versions.error = static_cast<double>(problems.size());
    const std::string place = "step " + std::to_string(step + 1);
    if (!problems.empty()) {
      versions.where = place + ", " + problems.front();
      versions.failure = place + ": " + problems.front();
      return {versions};  // contents were not looked at
    }
    if (!failure.empty()) {
      contents.error = 1.0;
      contents.where = place;
      contents.failure = place + ": " + failure;
    }
    return {versions, contents};
  }

  std::vector<Check> engine_logprobs(size_t step, const StepRecord& baseline, const CompareOptions& options) {
    const std::vector<std::vector<int64_t>> tokens = sequences(samples_.batches[step]);
    std::vector<Check> checks;
    for (int engine = 0; engine < processes_->fleet().size(); ++engine) {
      merge_checks(checks,
                   {compare_engine(baseline, engine, processes_->fleet().prompt_logprobs(engine, tokens), options)});
    }
    return checks;
  }

  void shutdown() { processes_->shutdown(); }
  const fs::path& logs() const { return directory_.logs(); }

 private:
  const loop::Prepared& prepared_;
  const Samples& samples_;
  loop::RunDirectory directory_;
  report::EventLog events_;
  std::unique_ptr<loop::Processes> processes_;
  std::unique_ptr<loop::WeightPush> push_;
};

bool all_passed(const std::vector<Check>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.passed(); });
}

// Later steps begin from the weights of earlier ones: after the first step that differs they say nothing new.
void run_steps(LegRun& run, const LegTask& task, const Samples& samples, const Baseline& baseline,
               std::vector<Check>& checks) {
  CompareOptions options;
  options.lr = task.prepared.spec.trainer.lr;
  for (size_t step = 0; step < baseline.steps.size() && all_passed(checks); ++step) {
    options.tolerances = baseline.tolerances[step];
    options.response_lengths = samples.batches[step].response_lengths;
    const rollout::StepProbe probe{.against = baseline.files.at(step).string(),
                                   .weight_spacing = baseline.weight_spacing};
    merge_checks(checks, compare_step(baseline.steps[step], run.train(step, probe), options));
    merge_checks(checks, run.push(step));
    // Engines that a push has left on other weights stay paused.
    const bool pushed = std::all_of(checks.begin(), checks.end(), [](const Check& check) {
      return check.passed() || (check.name != "versions" && check.name != "contents");
    });
    if (pushed) merge_checks(checks, run.engine_logprobs(step, baseline.steps[step], options));
  }
}

// Of a leg that ran to its end: nothing that should have been compared was passed over.
void require_every_check(const std::vector<Check>& checks) {
  for (const std::string& name : check_names()) {
    const bool made = std::any_of(checks.begin(), checks.end(), [&](const Check& c) { return c.name == name; });
    VIME_CHECK(made, "no check of " + name);
  }
}

}  // namespace

std::vector<StepRecord> train_alone(const LegTask& task, const Samples& samples,
                                    const std::vector<rollout::StepProbe>& probes) {
  LegRun run(task, samples);
  std::vector<StepRecord> records;
  for (size_t step = 0; step < samples.batches.size(); ++step) {
    records.push_back(run.train(step, probes.at(step)));
    const std::string problem = baseline_problem(records.back());
    if (!problem.empty()) throw Error(ErrorKind::check_failed, problem + "; nothing can be held against it");
  }
  run.shutdown();
  return records;
}

LegResult run_leg(const LegTask& task, const Samples& samples, const Baseline& baseline) {
  const auto start = SteadyClock::now();
  LegResult result;
  result.leg = task.leg;
  result.status = Status::fail;
  try {
    LegRun run(task, samples);
    run_steps(run, task, samples, baseline, result.checks);
    if (all_passed(result.checks)) {
      require_every_check(result.checks);
      result.status = Status::pass;
    }
    run.shutdown();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    result.status = Status::fail;
    result.failures.emplace_back(error.what());
  } catch (const std::exception& error) {
    result.status = Status::fail;
    result.failures.push_back(std::string("this is a bug in vime: ") + error.what());
  }
  for (const Check& check : result.checks) {
    if (!check.passed()) result.failures.push_back(check.failure);
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace vime::sweep
