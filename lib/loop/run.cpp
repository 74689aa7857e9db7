#include "loop/run.hpp"

#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "loop/checks.hpp"
#include "loop/closing.hpp"
#include "loop/generate.hpp"
#include "loop/push.hpp"
#include "loop/setup.hpp"
#include "report/progress_line.hpp"
#include "report/records.hpp"
#include "report/summary.hpp"
#include "reward/reward.hpp"
#include "rollout/metrics.hpp"
#include "rollout/train_batch.hpp"
#include "spec/plan_view.hpp"
#include "spec/print.hpp"

namespace vime::loop {
namespace {

constexpr int64_t kKeptRollouts = 8;
// Different streams of random numbers out of one seed.
constexpr uint64_t kRolloutStream = 1, kEvalStream = 2, kDataStream = 3;

// One run from the moment its processes serve.
class Run {
 public:
  Run(const Prepared& prepared, const RunDirectory& directory, Processes& processes, report::MetricsWriter& metrics,
      report::ProgressLine* progress)
      : prepared_(prepared),
        spec_(prepared.spec),
        directory_(directory),
        processes_(processes),
        metrics_(metrics),
        progress_(progress),
        push_(processes.fleet(), processes.trainers(), weights::VersionLedger(), spec_.ci_test),
        source_(prepared.prompts, mix_key(seed(), kDataStream), spec_.data.rollout_shuffle),
        reward_(reward::make_reward(spec_.reward.type)) {
    if (spec_.eval.eval_interval) eval_reward_ = reward::make_reward(spec_.eval.reward);
  }

  void execute() {
    start_ = SteadyClock::now();
    Json line = push_weights();
    if (spec_.eval.eval_interval && !spec_.eval.skip_eval_before_train) run_eval(line);
    metrics_.write(0, line);
    for (int64_t rollout_id = 0; rollout_id < spec_.rollout.num_rollout; ++rollout_id) step(rollout_id);
    if (saved_step_ != steps_) save();
  }

  // The weights as they are, after an interruption.
  void save_interrupted() {
    if (steps_ > 0 && saved_step_ != steps_) save();
  }

  report::Summary summary() const {
    report::Summary summary;
    summary.steps = optimizer_steps_;
    summary.weight_version = push_.committed();
    summary.eval = eval_.figures();
    return summary;
  }
  const std::vector<double>& rewards() const { return rewards_; }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(spec_.seed); }

  void step(int64_t rollout_id) {
    const auto begin = SteadyClock::now();
    processes_.supervisor().check();
    Json line = Json::object();
    const fs::path batch = roll_out(rollout_id, line);
    train(batch, line);
    steps_ = rollout_id + 1;
    const bool last = steps_ == spec_.rollout.num_rollout;
    if (spec_.checkpoint.save_interval && steps_ % *spec_.checkpoint.save_interval == 0) save();
    line.update(push_weights());
    if (spec_.eval.eval_interval && (last || steps_ % *spec_.eval.eval_interval == 0)) run_eval(line);
    line["perf/step_time"] = seconds_since(begin);
    metrics_.write(steps_, line);
    show_progress(line);
  }

  GenerateContext context(const reward::Reward& reward, uint64_t stream) {
    return {processes_.fleet(), *prepared_.tokenizer, reward, mix_key(seed(), stream), push_.committed()};
  }

  // Generates and scores one rollout; returns the batch file for the trainer ranks.
  fs::path roll_out(int64_t rollout_id, Json& line) {
    const auto begin = SteadyClock::now();
    const int64_t group_size = spec_.rollout.n_samples_per_prompt;
    const int64_t groups = spec_.rollout.rollout_batch_size;
    fleet::SamplingParams sampling;
    sampling.temperature = spec_.rollout.rollout_temperature;
    sampling.top_p = spec_.rollout.rollout_top_p;
    sampling.top_k = spec_.rollout.rollout_top_k;
    sampling.max_tokens = spec_.rollout.rollout_max_response_len;
    sampling.stop_token_ids = spec_.rollout.rollout_stop_token_ids;
    const std::vector<rollout::Sample> samples =
        generate_rollout(context(*reward_, kRolloutStream), source_.next(groups), group_size, sampling,
                         rollout_id * groups * group_size, rollout_id * groups);
    const double seconds = seconds_since(begin);
    const rollout::RolloutMetrics figures = rollout::rollout_metrics(samples);
    line.update(rollout::to_json(figures));
    rewards_.push_back(figures.raw_reward);

    algo::GroupAdvantageOptions advantage;
    advantage.std_normalization = spec_.algorithm.grpo_std_normalization;
    rollout::TrainBatch batch =
        rollout::make_train_batch(samples, prepared_.run_id, rollout_id, push_.committed(), advantage);
    if (!spec_.algorithm.rewards_normalization) batch.advantages = batch.rewards;
    const fs::path path = directory_.rollout(rollout_id);
    rollout::write_samples_jsonl(path.string() + ".jsonl", samples);
    rollout::write_train_batch(path.string() + ".safetensors", batch);
    directory_.prune_rollouts(rollout_id, kKeptRollouts);
    line["perf/rollout_time"] = seconds;
    line["perf/tokens_per_gpu_per_sec"] = figures.response_len_mean * static_cast<double>(figures.samples) / seconds /
                                          static_cast<double>(spec_.placement.rollout_num_gpus);
    return path.string() + ".safetensors";
  }

  void train(const fs::path& batch, Json& line) {
    const auto begin = SteadyClock::now();
    const std::vector<Json> replies = processes_.trainers().call_all("/train", {{"batch", batch.string()}});
    line["perf/train_time"] = seconds_since(begin);
    const size_t steps = json_member(replies.front(), "steps", "trainer rank 0: /train").size();
    // A rollout's line holds the mean over its optimizer steps.
    std::vector<std::string> problems;
    Json sums = Json::object();
    for (size_t step = 0; step < steps; ++step) {
      const Json figures = add_ranks(replies, step);
      for (const auto& [name, value] : figures.items()) {
        sums[name] = sums.value(name, 0.0) + value.get<double>() / static_cast<double>(steps);
      }
      const StepCheckInput input{static_cast<int>(step),      figures["train/ppo_kl"],
                                 figures["train/ppo_kl_abs"], figures["train/train_rollout_logprob_abs_diff"],
                                 figures["train/grad_norm"],  figures["train/loss"]};
      for (const std::string& problem : step_problems(input, {spec_.ci.kl_tolerance, spec_.ci.logprob_gap_tolerance})) {
        problems.push_back("rollout " + std::to_string(steps_) + ", optimizer step " + std::to_string(step) + ": " +
                           problem);
      }
      ++optimizer_steps_;
    }
    line.update(sums);
    line["train/check_problems"] = problems.size();
    if (!problems.empty() && spec_.ci_test) {
      metrics_.write(steps_ + 1, line);
      throw Error(ErrorKind::check_failed, join(problems, "\n"));
    }
    for (const std::string& problem : problems) log::warning("loop", problem);
  }

  // The ranks' shares of one step, added in rank order.
  static Json add_ranks(const std::vector<Json>& replies, size_t step) {
    Json figures = Json::object();
    for (size_t rank = 0; rank < replies.size(); ++rank) {
      const std::string what = "trainer rank " + std::to_string(rank) + ": /train";
      const Json& share = json_member(replies[rank], "steps", what).at(step);
      for (const auto& [name, value] : json_member(share, "sums", what).items()) {
        figures[name] = figures.value(name, 0.0) + (value.is_null() ? std::nan("") : value.get<double>());
      }
      if (rank > 0) continue;
      for (const auto& [name, value] : json_member(share, "same", what).items()) {
        figures[name] = value.is_null() ? std::nan("") : value.get<double>();
      }
    }
    return figures;
  }

  Json push_weights() {
    const PushReport report = push_.run();
    return {{"weights/version", report.version},
            {"perf/update_weights_pause_time", report.pause_s},
            {"perf/update_weights_prepare_time", report.prepare_s},
            {"perf/update_weights_extra_bytes", report.extra_bytes}};
  }

  void run_eval(Json& line) {
    const auto begin = SteadyClock::now();
    fleet::SamplingParams sampling;
    sampling.temperature = spec_.eval.temperature;
    sampling.max_tokens = spec_.eval.max_response_len;
    sampling.stop_token_ids = spec_.rollout.rollout_stop_token_ids;
    const double score = evaluate(context(*eval_reward_, kEvalStream), prepared_.eval_prompts, sampling);
    const std::string name = eval_name(*spec_.eval.prompt_data);
    eval_.record(name, steps_, score);
    line["eval/" + name] = score;
    line["perf/eval_time"] = seconds_since(begin);
    log::info("loop", "eval/" + name + " after " + std::to_string(steps_) + " steps: " + format_number(score));
  }

  void save() {
    const fs::path aside = directory_.checkpoint_aside(steps_);
    std::error_code ignored;  // nothing there is the usual case
    fs::remove_all(aside, ignored);
    make_directories(aside / "model");
    processes_.trainers().call(0, "/save", {{"dir", (aside / "model").string()}});
    text::save_tokenizer(*prepared_.tokenizer, aside / "model");
    write_file_atomic(aside / "loop.json", Json({{"run_id", prepared_.run_id},
                                                 {"step", steps_},
                                                 {"weight_version", push_.committed()},
                                                 {"data_epoch", source_.position().epoch},
                                                 {"data_offset", source_.position().offset}})
                                                   .dump(2) +
                                               "\n");
    directory_.publish_checkpoint(steps_, spec_.checkpoint.keep_last);
    saved_step_ = steps_;
  }

  void show_progress(const Json& line) {
    if (progress_ == nullptr) return;
    const double per_step = seconds_since(start_) / static_cast<double>(steps_);
    const double left = per_step * static_cast<double>(spec_.rollout.num_rollout - steps_);
    std::string text = "step " + std::to_string(steps_) + "/" + std::to_string(spec_.rollout.num_rollout) +
                       "  reward " + format_number(rewards_.back(), 3) + "  grad " +
                       format_number(line["train/grad_norm"].get<double>(), 3) + "  version " +
                       std::to_string(push_.committed()) + "  " + format_seconds(per_step) + "/step  " +
                       format_seconds(left) + " left";
    progress_->update(text, SteadyClock::now());
  }

  const Prepared& prepared_;
  const spec::ExperimentSpec& spec_;
  const RunDirectory& directory_;
  Processes& processes_;
  report::MetricsWriter& metrics_;
  report::ProgressLine* progress_;
  WeightPush push_;
  data::DataSource source_;
  std::unique_ptr<reward::Reward> reward_;
  std::unique_ptr<reward::Reward> eval_reward_;
  report::EvalHistory eval_;
  std::vector<double> rewards_;
  int64_t steps_ = 0;  // rollouts trained on
  int64_t optimizer_steps_ = 0;
  int64_t saved_step_ = -1;
  SteadyClock::time_point start_{};
};

// Starts the processes, runs, ends them; the first error of all this is the run's.
report::Summary run_processes(const Prepared& prepared, const RunDirectory& directory, const RunOptions& options,
                              report::ProgressLine* progress, std::vector<double>& rewards) {
  report::EventLog events(directory.events(), utc_now);
  report::MetricsWriter metrics(directory.metrics());
  report::Summary summary;
  std::optional<Processes> processes;
  std::optional<Run> run;
  try {
    events.write("run_started", {{"run_id", prepared.run_id}});
    processes.emplace(prepared, directory, options.vime_binary,
                      [&](const std::string& kind, const Json& fields) { events.write(kind, fields); });
    run.emplace(prepared, directory, *processes, metrics, progress);
    run->execute();
  } catch (const Error& error) {
    summary.error = error;
  } catch (const std::exception& error) {
    summary.error = Error(ErrorKind::internal, error.what(), "this is a bug in vime");
  }
  const std::optional<Error> error = summary.error;
  if (run) {
    if (error && error->kind() == ErrorKind::interrupted) {
      try {
        processes->supervisor().heed_interrupts(false);
        run->save_interrupted();
      } catch (const Error& while_saving) {
        log::error("loop", while_saving.within("checkpoint after the interruption").what());
      }
    }
    summary = run->summary();
    summary.error = error;
    rewards = run->rewards();
  }
  if (processes) processes->shutdown();
  events.write("run_ended", {{"status", report::status(summary)}});
  return summary;
}

}  // namespace

int execute_run(const RunOptions& options) {
  const auto start = SteadyClock::now();
  const Prepared prepared = prepare(options.spec, random_token());
  const RunDirectory directory(options.run_dir);
  write_file_atomic(directory.spec(), spec::to_yaml(options.spec));
  const spec::DeviceMemory memory = spec::device_memory(options.spec, prepared.config);
  write_file_atomic(directory.plan(), spec::plan_json(options.spec, prepared.plan, memory, true).dump(2) + "\n");
  log::tee_to((directory.logs() / "driver.log").string());
  if (prepared.prompts_too_long > 0) {
    log::warning("loop", std::to_string(prepared.prompts_too_long) +
                             " prompts are over rollout_max_prompt_len and are left out");
  }
  std::optional<report::ProgressLine> progress;
  if (!options.quiet) {
    progress.emplace(report::progress_options_for_stderr(), report::write_to_stderr);
    progress->attach_log();
  }
  std::vector<double> rewards;
  report::Summary summary = run_processes(prepared, directory, options, progress ? &*progress : nullptr, rewards);
  summary.wall_time_s = seconds_since(start);
  report::write_summary(directory.summary(), summary);
  if (progress) progress->finish();
  progress.reset();
  if (!options.quiet) print_closing(summary, rewards, directory);
  if (summary.error) log::error("loop", summary.error->what());
  return report::exit_status(summary);
}

}  // namespace vime::loop
