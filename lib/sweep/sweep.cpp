#include "sweep/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "proc/process.hpp"
#include "sweep/jobs.hpp"
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
          .devices_per_gpu = plan.settings.devices_per_gpu,
          .jobs = plan.jobs,
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
        root_(folder_.path()),
        busy_(plan.settings.device_uuids.size()) {
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
    options_.print(left_out_line(plan_.left_out) + jobs_line(plan_.jobs) + table_head());
    const std::vector<Loss> losses = losses_of(plan_.legs);
    result_.baselines.resize(losses.size());
    side_by_side(losses.size(), [&](size_t i) { run_one_baseline(losses[i], result_.baselines[i]); });
    result_.legs.resize(plan_.legs.size());
    side_by_side(plan_.legs.size(), [&](size_t i) { run_one_leg(plan_.legs[i], result_.legs[i]); });
    result_.interrupted = interrupted_ || proc::interrupted();
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

  // Calls work(0), work(1), ... from as many threads as there are jobs, this one among them. Everything of a leg is its
  // thread's; what legs share is behind mutex_. `work` does not throw.
  template <typename Work>
  void side_by_side(size_t count, const Work& work) {
    std::atomic<size_t> next{0};
    const auto take_turns = [&] {
      for (size_t i = next++; i < count; i = next++) work(i);
    };
    std::vector<std::jthread> threads;
    for (size_t others = std::min(static_cast<size_t>(plan_.jobs), count); others > 1; --others) {
      threads.emplace_back(take_turns);
    }
    take_turns();
  }

  // A leg's devices, for as long as this lives.
  class TakenDevices {
   public:
    TakenDevices(Sweep& sweep, int count) : sweep_(sweep), count_(static_cast<size_t>(count)) {
      const std::lock_guard lock(sweep_.mutex_);
      first_ = sweep_.busy_.take(count_);
    }
    ~TakenDevices() {
      const std::lock_guard lock(sweep_.mutex_);
      sweep_.busy_.give_back(first_, count_);
    }
    TakenDevices(const TakenDevices&) = delete;
    TakenDevices& operator=(const TakenDevices&) = delete;
    size_t first() const { return first_; }

   private:
    Sweep& sweep_;
    size_t count_, first_ = 0;
  };

  LegTask task_of(const SweepPlan& plan, const Leg& leg, bool engines, const std::string& folder,
                  const TakenDevices& taken) const {
    return {leg, prepare_leg(plan, leg, engines, (root_ / kSamplesFolder).string(), taken.first()), root_ / folder,
            options_.vime_binary};
  }

  // In bfloat16 a second process, in float32 with the same rounded weights, says how large the arithmetic's noise is.
  Baseline train_baseline(const LegTask& task, const TakenDevices& taken) {
    std::vector<rollout::StepProbe> writing;
    std::vector<fs::path> files;
    for (size_t step = 0; step < samples_.files.size(); ++step) {
      files.push_back(task.folder / kStepsFolder / ("step_" + std::to_string(step + 1) + ".safetensors"));
      writing.push_back({.write = files.back().string()});
    }
    std::vector<StepRecord> steps = train_alone(task, samples_, writing);
    if (plan_.settings.dtype == "float32") {
      Baseline baseline = float32_baseline(std::move(steps));
      baseline.files = std::move(files);
      return baseline;
    }
    SweepPlan exact = plan_;
    exact.settings.dtype = "float32";
    const LegTask beside = task_of(exact, task.leg, false, task.folder.filename().string() + "-float32", taken);
    Baseline baseline = bfloat16_baseline(std::move(steps), train_alone(beside, samples_, probes_beside(files)),
                                          task.prepared.spec.trainer.lr);
    baseline.files = std::move(files);
    tidy(beside.folder, Status::pass);
    return baseline;
  }

  void run_one_baseline(Loss loss, LegResult& result) {
    const auto start = SteadyClock::now();
    result.leg = baseline_leg(loss);
    if (interrupted()) return;
    const TakenDevices taken(*this, 1);
    try_to(result, [&] {
      Baseline baseline = train_baseline(task_of(plan_, result.leg, false, baseline_folder(loss), taken), taken);
      const std::lock_guard lock(mutex_);
      baselines_[loss] = std::move(baseline);
      result.status = Status::pass;
    });
    result.seconds = seconds_since(start);
    name_logs(root_ / baseline_folder(loss), result);
    const std::lock_guard lock(mutex_);
    options_.print(baseline_row(result));
  }

  // Baselines are there, or not, before the first leg begins.
  void run_one_leg(const Leg& leg, LegResult& result) {
    result.leg = leg;
    if (interrupted()) {
      result.failures = {"interrupted by the user"};
      return;
    }
    const auto baseline = baselines_.find(leg.loss);
    if (baseline == baselines_.end()) {
      result.failures = {"there is no baseline to hold it against"};
      return;
    }
    const TakenDevices taken(*this, leg.num_gpus);
    try_to(result,
           [&] { result = run_leg(task_of(plan_, leg, true, leg_folder(leg), taken), samples_, baseline->second); });
    name_logs(root_ / leg_folder(leg), result);
    tidy(root_ / leg_folder(leg), result.status);
    if (result.status != Status::not_run) report(result);
  }

  // In the order in which legs finish.
  void report(const LegResult& result) {
    const std::lock_guard lock(mutex_);
    finished_.push_back(result);
    std::vector<Leg> left;
    for (const Leg& leg : plan_.legs) {
      const auto same = [&](const LegResult& one) { return one.leg == leg; };
      if (std::none_of(finished_.begin(), finished_.end(), same)) left.push_back(leg);
    }
    const double seconds =
        seconds_left(finished_, left) / std::min<double>(plan_.jobs, std::max<double>(1, left.size()));
    options_.print(table_row(result, {finished_.size(), plan_.legs.size(), seconds}));
  }

  template <typename Work>
  void try_to(LegResult& result, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      take_failure(error, result);
    } catch (const std::exception& error) {
      take_failure(Error(ErrorKind::internal, error.what(), "this is a bug in vime"), result);
    }
  }

  // An interruption says nothing about the leg.
  void take_failure(const Error& error, LegResult& result) {
    result.failures = {error.what()};
    if (error.kind() == ErrorKind::interrupted) {
      interrupted_ = true;
      return;
    }
    result.status = Status::fail;
  }

  void name_logs(const fs::path& folder, LegResult& result) const {
    std::error_code ignored;
    const fs::path logs = folder / "logs" / "latest";
    if ((options_.keep || result.status == Status::fail) && fs::exists(logs, ignored)) result.logs = logs.string();
  }

  bool interrupted() const { return interrupted_ || proc::interrupted(); }

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
  std::atomic<bool> interrupted_{false};
  SweepResult result_;  // each leg's part is its thread's
  // The rest is behind mutex_, as is printing.
  std::mutex mutex_;
  BusyDevices busy_;
  std::map<Loss, Baseline> baselines_;
  std::vector<LegResult> finished_;
};

}  // namespace

SweepResult execute_sweep(const SweepPlan& plan, const SweepOptions& options) {
  return Sweep(plan, options).run();
}

}  // namespace vime::sweep
