#include "sweep/sweep.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "proc/process.hpp"
#include "sweep/report.hpp"
#include "sweep/result_file.hpp"
#include "sweep/run_folder.hpp"
#include "sweep/run_leg.hpp"
#include "sweep/samples.hpp"

namespace vime::sweep {
namespace {

const char* const kSamplesFolder = "samples";
const char* const kStepsFolder = "steps";  // of a baseline

Subject subject_of(const SweepPlan& plan, const SweepOptions& options) {
  const spec::ExperimentSpec& spec = plan.prepared.spec;
  return {.vime = options.vime_version,
          .started = utc_now(),
          .config = plan.config,
          .set = plan.overrides,
          .seed = spec.seed,
          .rollout_num_gpus_per_engine = plan.settings.gpus_per_engine,
          .device = spec.placement.device,
          .model = spec.model.path ? *spec.model.path : spec.model.preset.value_or(""),
          .left_out = plan.left_out};
}

std::string baseline_folder(Loss loss) {
  return std::string("baseline-") + loss_name(loss);
}

// In a folder that is there, under the names that a run gives its rollouts, so that a leg's spec can also be given to
// `vime run`.
Samples write_samples(const SweepPlan& plan, const fs::path& folder) {
  const spec::Algorithm& algorithm = plan.base.algorithm;
  SampleOptions options;
  options.seed = static_cast<uint64_t>(plan.base.seed);
  options.vocab_size = plan.prepared.config.vocab_size;
  options.samples = plan.settings.samples;
  options.advantage.std_normalization = algorithm.grpo_std_normalization;
  options.normalize_rewards = algorithm.rewards_normalization;
  Samples samples;
  samples.batches = make_samples(options, plan.prepared.run_id);
  for (size_t step = 0; step < samples.batches.size(); ++step) {
    char name[64];
    std::snprintf(name, sizeof name, "rollout_%06zu.safetensors", step);
    samples.files.push_back(folder / name);
    rollout::write_train_batch(samples.files.back(), samples.batches[step]);
  }
  return samples;
}

class Sweep {
 public:
  Sweep(const SweepPlan& plan, const SweepOptions& options)
      : plan_(plan),
        options_(options),
        file_(options.json_path ? std::optional<ResultFile>(*options.json_path) : std::nullopt),
        folder_(options.run_dir, !options.keep),
        root_(folder_.path()) {
    result_.subject = subject_of(plan, options);
    try {
      take_samples();
      if (file_) file_->clear();
    } catch (const Error&) {
      if (!options_.keep) folder_.remove();
      throw;
    }
  }

  SweepResult run() {
    const auto start = SteadyClock::now();
    options_.print(left_out_line(plan_.left_out) + table_head());
    for (const Loss loss : losses_of(plan_.legs)) run_one_baseline(loss);
    for (size_t i = 0; i < plan_.legs.size(); ++i) {
      LegResult result = outcome_of(plan_.legs[i]);
      const std::vector<Leg> left(plan_.legs.begin() + static_cast<int64_t>(i) + 1, plan_.legs.end());
      result_.legs.push_back(std::move(result));
      const LegResult& last = result_.legs.back();
      if (last.status == Status::not_run) continue;
      options_.print(table_row(last, {i + 1, plan_.legs.size(), seconds_left(result_.legs, left)}));
    }
    for (const LegResult& baseline : result_.baselines) tidy_baseline(baseline);
    result_.seconds = seconds_since(start);
    remove_what_is_not_kept();
    options_.print(closing(result_));
    if (file_) file_->write(to_json(result_));
    return std::move(result_);
  }

 private:
  // The folder of the samples is made by one of two sweeps that were given the same empty --run-dir.
  void take_samples() {
    const fs::path folder = root_ / kSamplesFolder;
    std::error_code error;
    if (!fs::create_directory(folder, error) && !error) {
      throw Error(ErrorKind::refused, "run directory " + root_.string() + " is used by another sweep",
                  "choose another --run-dir");
    }
    try {
      samples_ = write_samples(plan_, folder);
    } catch (const Error& failure) {
      throw Error(ErrorKind::refused, "run directory: " + failure.message(), "choose a --run-dir that can be written");
    }
  }

  LegTask task_of(const SweepPlan& plan, const Leg& leg, bool engines, const std::string& folder) const {
    return {leg, prepare_leg(plan, leg, engines, (root_ / kSamplesFolder).string()), root_ / folder,
            options_.vime_binary};
  }

  // In bfloat16 a second process, in float32, says how large the noise is.
  Baseline train_baseline(const LegTask& task) {
    std::vector<rollout::StepProbe> writing, comparing;
    std::vector<fs::path> files;
    for (size_t step = 0; step < samples_.files.size(); ++step) {
      files.push_back(task.folder / kStepsFolder / ("step_" + std::to_string(step + 1) + ".safetensors"));
      writing.push_back({.write = files.back().string()});
      comparing.push_back({.against = files.back().string(), .weight_spacing = kBfloat16Spacing});
    }
    std::vector<StepRecord> steps = train_alone(task, samples_, writing);
    if (plan_.settings.dtype == "float32") {
      Baseline baseline = float32_baseline(std::move(steps));
      baseline.files = std::move(files);
      return baseline;
    }
    SweepPlan exact = plan_;
    exact.settings.dtype = "float32";
    const LegTask beside = task_of(exact, task.leg, false, task.folder.filename().string() + "-float32");
    Baseline baseline =
        bfloat16_baseline(std::move(steps), train_alone(beside, samples_, comparing), task.prepared.spec.trainer.lr);
    baseline.files = std::move(files);
    tidy(beside.folder, Status::pass);
    return baseline;
  }

  void run_one_baseline(Loss loss) {
    const auto start = SteadyClock::now();
    LegResult result;
    result.leg = baseline_leg(loss);
    const LegTask task = task_of(plan_, result.leg, false, baseline_folder(loss));
    if (!interrupted()) {
      try {
        baselines_[loss] = train_baseline(task);
        result.status = Status::pass;
      } catch (const Error& error) {
        take_failure(error, result);
      } catch (const std::exception& error) {
        take_failure(Error(ErrorKind::internal, error.what(), "this is a bug in vime"), result);
      }
      result.seconds = seconds_since(start);
      name_logs(task.folder, result);
      options_.print(baseline_row(result));
    }
    result_.baselines.push_back(std::move(result));
  }

  LegResult outcome_of(const Leg& leg) {
    LegResult result;
    result.leg = leg;
    if (interrupted()) {
      result.failures = {"interrupted by the user"};
      return result;
    }
    const auto baseline = baselines_.find(leg.loss);
    if (baseline == baselines_.end()) {
      result.failures = {"there is no baseline to hold it against"};
      return result;
    }
    const LegTask task = task_of(plan_, leg, true, leg_folder(leg));
    try {
      result = run_leg(task, samples_, baseline->second);
    } catch (const Error& error) {
      take_failure(error, result);
    }
    name_logs(task.folder, result);
    tidy(task.folder, result.status);
    return result;
  }

  // An interruption says nothing about the leg.
  void take_failure(const Error& error, LegResult& result) {
    result.failures = {error.what()};
    if (error.kind() == ErrorKind::interrupted) {
      result_.interrupted = true;
      return;
    }
    result.status = Status::fail;
  }

  void name_logs(const fs::path& folder, LegResult& result) const {
    std::error_code ignored;
    const fs::path logs = folder / "logs" / "latest";
    if ((options_.keep || result.status == Status::fail) && fs::exists(logs, ignored)) result.logs = logs.string();
  }

  bool interrupted() {
    result_.interrupted = result_.interrupted || proc::interrupted();
    return result_.interrupted;
  }

  void tidy(const fs::path& folder, Status status) const {
    if (!options_.keep && status != Status::fail) remove(folder);
  }

  // What legs were held against is large, and by itself of no use.
  void tidy_baseline(const LegResult& baseline) const {
    const fs::path folder = root_ / baseline_folder(baseline.leg.loss);
    remove(folder / kStepsFolder);
    tidy(folder, baseline.status);
  }

  static void remove(const fs::path& folder) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) log::warning("sweep", "remove " + folder.string() + ": " + error.message());
  }

  void remove_what_is_not_kept() const {
    const auto failed = [](const LegResult& leg) { return leg.status == Status::fail; };
    const bool logs = std::any_of(result_.baselines.begin(), result_.baselines.end(), failed) ||
                      std::any_of(result_.legs.begin(), result_.legs.end(), failed);
    if (!options_.keep && !logs) folder_.remove();
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  std::optional<ResultFile> file_;
  RunFolder folder_;
  fs::path root_;
  Samples samples_;
  std::map<Loss, Baseline> baselines_;
  SweepResult result_;
};

}  // namespace

SweepResult execute_sweep(const SweepPlan& plan, const SweepOptions& options) {
  return Sweep(plan, options).run();
}

}  // namespace vime::sweep
