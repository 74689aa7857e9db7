#include "sweep/sweep.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "proc/process.hpp"
#include "sweep/report.hpp"
#include "sweep/run_leg.hpp"
#include "sweep/samples.hpp"

namespace vime::sweep {
namespace {

const char* const kSamplesFolder = "samples";

void require_empty(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored) || (fs::is_directory(folder, ignored) && fs::is_empty(folder, ignored))) return;
  throw Error(ErrorKind::refused, "run directory " + folder.string() + " is not an empty folder",
              "choose another --run-dir, or remove it");
}

void require_json_folder(const std::string& json_path) {
  if (json_path.empty()) return;
  const fs::path folder = fs::absolute(json_path).parent_path();
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return;
  throw Error(ErrorKind::refused, "--json " + json_path + ": there is no folder " + folder.string());
}

// Under the names that a run gives its rollouts, so that a leg's spec can also be given to `vime run`.
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
  make_directories(folder);
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
      : plan_(plan), options_(options), root_(fs::absolute(options.run_dir).lexically_normal()) {
    require_empty(root_);
    require_json_folder(options.json_path);
    try {
      samples_ = write_samples(plan, root_ / kSamplesFolder);
    } catch (const Error& error) {
      throw Error(ErrorKind::refused, "run directory: " + error.message(), "choose a --run-dir that can be written");
    }
  }

  SweepResult run() {
    const auto start = SteadyClock::now();
    options_.print(table_head());
    for (const Loss loss : losses_of(plan_.legs)) run_one_baseline(loss);
    for (size_t i = 0; i < plan_.legs.size(); ++i) {
      LegResult result = outcome_of(plan_.legs[i]);
      const std::vector<Leg> left(plan_.legs.begin() + static_cast<int64_t>(i) + 1, plan_.legs.end());
      result_.legs.push_back(std::move(result));
      const LegResult& last = result_.legs.back();
      if (last.status == Status::not_run) continue;
      options_.print(table_row(last, {i + 1, plan_.legs.size(), seconds_left(result_.legs, left)}));
    }
    result_.seconds = seconds_since(start);
    remove_what_is_not_kept();
    return std::move(result_);
  }

 private:
  LegTask task_of(const Leg& leg, bool is_baseline) const {
    const std::string folder = is_baseline ? std::string("baseline-") + loss_name(leg.loss) : leg_folder(leg);
    return {leg, prepare_leg(plan_, leg, !is_baseline, (root_ / kSamplesFolder).string()), root_ / folder,
            options_.vime_binary};
  }

  void run_one_baseline(Loss loss) {
    const auto start = SteadyClock::now();
    LegResult result;
    result.leg = baseline_leg(loss);
    const LegTask task = task_of(result.leg, true);
    if (!interrupted()) {
      try {
        baselines_[loss] = run_baseline(task, samples_);
        result.status = Status::pass;
      } catch (const Error& error) {
        take_failure(error, result, task);
      } catch (const std::exception& error) {
        take_failure(Error(ErrorKind::internal, error.what(), "this is a bug in vime"), result, task);
      }
      result.seconds = seconds_since(start);
      tidy(task.folder, result);
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
    const LegTask task = task_of(leg, false);
    try {
      result = run_leg(task, samples_, baseline->second);
    } catch (const Error& error) {
      take_failure(error, result, task);
    }
    tidy(task.folder, result);
    return result;
  }

  // An interruption says nothing about the leg.
  void take_failure(const Error& error, LegResult& result, const LegTask& task) {
    result.failures = {error.what()};
    if (error.kind() == ErrorKind::interrupted) {
      result_.interrupted = true;
      return;
    }
    result.status = Status::fail;
    result.logs = (task.folder / "logs" / "latest").string();
  }

  bool interrupted() {
    result_.interrupted = result_.interrupted || proc::interrupted();
    return result_.interrupted;
  }

  // Dumps are large: only a failed leg's are kept, where the user has said where.
  void tidy(const fs::path& folder, const LegResult& result) const {
    std::error_code error;
    if (!options_.keep && result.status != Status::fail) {
      fs::remove_all(folder, error);
    } else if (!options_.keep || result.status != Status::fail) {
      fs::remove_all(dump_folder(folder), error);
    }
    if (error) log::warning("sweep", "remove " + folder.string() + ": " + error.message());
  }

  void remove_what_is_not_kept() const {
    const auto failed = [](const LegResult& leg) { return leg.status == Status::fail; };
    const bool logs = std::any_of(result_.baselines.begin(), result_.baselines.end(), failed) ||
                      std::any_of(result_.legs.begin(), result_.legs.end(), failed);
    if (options_.keep || logs) return;
    std::error_code error;
    fs::remove_all(root_, error);
    if (error) log::warning("sweep", "remove " + root_.string() + ": " + error.message());
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  fs::path root_;
  Samples samples_;
  std::map<Loss, std::vector<StepRecord>> baselines_;
  SweepResult result_;
};

}  // namespace

SweepResult execute_sweep(const SweepPlan& plan, const SweepOptions& options) {
  Sweep sweep(plan, options);
  SweepResult result = sweep.run();
  options.print(closing(result));
  if (!options.json_path.empty()) write_file_atomic(options.json_path, to_json(result).dump(2) + "\n");
  return result;
}

}  // namespace vime::sweep
