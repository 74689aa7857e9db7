#include "loop/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>
#include <utility>

#include "arch/parameters.hpp"
#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "loop/evaluation.hpp"
#include "loop/train_figures.hpp"
#include "spec/placement_request.hpp"

namespace vime::loop {
namespace {

// Versions count pushes, and step k ends with the push of version k + 1: a run that goes on from step k sends the same
// bytes under the same number again.
weights::VersionLedger ledger_of(const std::optional<Checkpoint>& from) {
  return from ? weights::VersionLedger(from->state.weight_version, from->state.weight_version)
              : weights::VersionLedger();
}

PushOptions push_options(const Prepared& prepared, const RunDirectory& directory) {
  const spec::ExperimentSpec& spec = prepared.spec;
  PushOptions options;
  options.compare_contents = options.probe_always = spec.ci_test;
  options.probe = {prepared.run_id,        directory.root(),        prepared.config.vocab_size,
                   prepared.max_model_len, prepared.plan.layout.dp, spec.ci.logprob_gap_tolerance};
  for (const placement::Engine& engine : prepared.plan.engines) {
    options.from_disk.push_back(spec::route_of(spec, engine) == spec::Route::disk);
  }
  // The run's own in a folder that several may share.
  options.disk_dir = spec.weight_sync.disk_dir ? fs::path(*spec.weight_sync.disk_dir) / ("vime-" + prepared.run_id)
                                               : directory.root() / "weights";
  options.weights_bytes =
      arch::arena_layout(prepared.config, tensor::parse_dtype_name(spec.trainer.dtype), 0, 1).total_bytes;
  return options;
}

// NaN for what is absent, and for null, which stands for a number that is not finite.
double number_in(const Json& line, const std::string& name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}

// Of the weight files' names and sizes and of the start and end of each: enough to tell one model from another.
std::string weights_fingerprint(const fs::path& folder) {
  constexpr size_t kLooked = size_t{1} << 20;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Fingerprint fingerprint(files.size());
  std::string buffer(kLooked, '\0');
  for (const fs::path& file : files) {
    const auto bytes = static_cast<size_t>(fs::file_size(file));
    const size_t looked = std::min(kLooked, bytes);
    fingerprint.add(bytes);
    std::ifstream stream(file, std::ios::binary);
    for (const size_t from : {size_t{0}, bytes - looked}) {
      stream.seekg(static_cast<std::streamoff>(from));
      stream.read(buffer.data(), static_cast<std::streamsize>(looked));
      // Whole words only, as in the checkpoints that there are.
      fingerprint.add_bytes(std::string_view(buffer.data(), looked / sizeof(uint64_t) * sizeof(uint64_t)));
    }
  }
  return hex(fingerprint.value());
}

// What vime does not change of the model folder that training began with.
void carry_along(const spec::ExperimentSpec& spec, const fs::path& folder) {
  constexpr const char* kFile = "generation_config.json";
  std::error_code ignored;
  if (!spec.model.path || !fs::exists(fs::path(*spec.model.path) / kFile, ignored)) return;
  write_file_atomic(folder / kFile, read_file(fs::path(*spec.model.path) / kFile));
}

}  // namespace

Identity identity_of(const Prepared& prepared) {
  const spec::ExperimentSpec& spec = prepared.spec;
  Identity identity{spec.seed,
                    prepared.data_fingerprint,
                    arch::config_json(prepared.config, "float32"),
                    spec.algorithm.loss_type,
                    spec.trainer.optimizer,
                    ""};
  if (spec.debug.load_rollout) identity.data = "rollouts of " + *spec.debug.load_rollout;
  if (spec.algorithm.kl_loss_coef != 0.0) {
    const std::optional<std::string>& folder = spec.model.ref_load ? spec.model.ref_load : spec.model.path;
    identity.start = folder ? weights_fingerprint(*folder) : "preset";
  }
  return identity;
}

Experiment::Experiment(Prepared& prepared, const RunDirectory& directory, Processes& processes,
                       report::MetricsWriter& metrics, report::ProgressLine* progress,
                       const std::optional<Checkpoint>& from, const std::vector<Json>& earlier)
    : prepared_(prepared),
      spec_(prepared.spec),
      directory_(directory),
      processes_(processes),
      metrics_(metrics),
      progress_(progress),
      identity_(identity_of(prepared)),
      push_(processes.fleet(), processes.trainers(), ledger_of(from), push_options(prepared, directory)),
      turns_(spec_.offload, processes.fleet(), processes.trainers()),
      rollouts_(prepared, directory, processes) {
  if (from) state_ = from->state;
  saved_step_ = first_step_ = state_.step;
  for (const Json& line : earlier) {
    const auto step = line["step"].get<int64_t>();
    if (step > 0) rewards_.push_back(number_in(line, "rollout/raw_reward"));
    for (const spec::EvalDataset& set : spec_.eval.datasets) {
      if (line.contains("eval/" + set.name)) eval_.record(set.name, step, number_in(line, "eval/" + set.name));
    }
  }
  if (state_.step > 0) rewards_.push_back(number_in(state_.line, "rollout/raw_reward"));
}

void Experiment::execute() {
  start_ = step_start_ = SteadyClock::now();
  finish_step();  // of the weights that there are: step 0, or the one that the checkpoint stands at
  while (!is_last()) step();
  if (prepared_.parts.trainers && saved_step_ != state_.step) save();
}

void Experiment::save_unfinished() {
  if (prepared_.parts.trainers && ranks_hold_state_ && saved_step_ != state_.step) save();
}

report::Summary Experiment::summary() const {
  report::Summary summary;
  summary.steps = state_.optimizer_steps;
  summary.weight_version = push_.committed();
  summary.eval = eval_.figures();
  return summary;
}

bool Experiment::is_last() const {
  return state_.step >= spec_.rollout.num_rollout;
}

void Experiment::step() {
  step_start_ = SteadyClock::now();
  processes_.supervisor().check();
  // Only a step that was trained moves the state on: an interruption before that begins it anew.
  LoopState next = state_;
  next.line = Json::object();
  next.weight_version = push_.committed();
  const Rollout rollout = rollouts_.next(next, push_.committed());
  next.line.update(rollout.metrics);
  ranks_hold_state_ = false;
  if (prepared_.parts.trainers) train(rollout.batch, next);
  ++next.step;
  state_ = std::move(next);
  ranks_hold_state_ = true;
  rewards_.push_back(rollout.raw_reward);
  if (prepared_.parts.trainers && spec_.checkpoint.save_interval &&
      state_.step % *spec_.checkpoint.save_interval == 0) {
    save();
  }
  finish_step();
}

// Push, evaluation, and the step's line of metrics: what a run that goes on from this step's checkpoint does again.
void Experiment::finish_step() {
  line_ = state_.line;
  const bool due = evaluation_is_due();
  // Supervised training needs the engines for evaluations only.
  if (prepared_.parts.pushes() && (due || spec_.algorithm.loss_type != "sft")) push_weights();
  if (due) run_evaluations();
  if (spec_.offload.train || spec_.offload.rollout) line_["perf/offload_time"] = turns_.take_seconds();
  if (state_.step > 0) line_["perf/step_time"] = seconds_since(step_start_);
  metrics_.write(state_.step, line_);
  show_progress();
}

bool Experiment::evaluation_is_due() const {
  if (!spec_.eval.eval_interval || !prepared_.parts.engines) return false;
  if (state_.step == 0) return !spec_.eval.skip_eval_before_train;
  if (!prepared_.parts.trainers) return false;  // the weights do not change
  return is_last() || state_.step % *spec_.eval.eval_interval == 0;
}

void Experiment::train(const fs::path& batch, LoopState& next) {
  turns_.for_training();
  const auto begin = SteadyClock::now();
  const std::vector<Json> replies =
      processes_.trainers().call_all("/train", {{"batch", batch.string()}, {"probe", nullptr}});
  next.line["perf/train_time"] = seconds_since(begin);
  if (spec_.placement.device == "cuda") next.line["perf/trainer_peak_memory_bytes"] = peak_memory(replies);
  ChecksOn on;
  on.first_step_kl = spec_.algorithm.loss_type != "sft";
  on.engine_gap = on.first_step_kl && !spec_.debug.load_rollout;
  on.reference_is_start = next.step == 0 && spec_.algorithm.kl_loss_coef != 0.0 && !spec_.model.ref_load;
  const TrainFigures figures =
      train_figures(replies, next.step, {spec_.ci.kl_tolerance, spec_.ci.logprob_gap_tolerance}, on);
  next.line.update(figures.metrics);
  next.optimizer_steps += figures.optimizer_steps;
  const bool stops = figures.nonfinite_steps > 0 && !spec_.trainer.skip_nonfinite;
  if (!figures.problems.empty() && (spec_.ci_test || stops)) {
    metrics_.write(next.step + 1, next.line);
    throw Error(ErrorKind::check_failed, join(figures.problems, "\n"));
  }
  for (const std::string& problem : figures.problems) log::warning("loop", problem);
}

void Experiment::push_weights() {
  turns_.for_push();
  const PushReport report = push_.run([&] { turns_.for_generation(); });
  push_.check_engines();
  line_["weights/version"] = report.version;
  line_["perf/update_weights_pause_time"] = report.pause_s;
  line_["perf/update_weights_transfer_time"] = report.transfer_s;
  if (report.finish_s > 0.0) {  // not all engines load from a folder
    line_["perf/update_weights_start_time"] = report.start_s;
    line_["perf/update_weights_update_time"] = report.update_s;
    line_["perf/update_weights_finish_time"] = report.finish_s;
  }
  line_["perf/update_weights_prepare_time"] = report.prepare_s;
  line_["perf/update_weights_extra_bytes"] = report.extra_bytes;
}

void Experiment::run_evaluations() {
  const auto begin = SteadyClock::now();
  const uint64_t stream = mix_key(static_cast<uint64_t>(spec_.seed), kEvalStream);
  for (size_t i = 0; i < spec_.eval.datasets.size(); ++i) {
    const GenerateContext context = generate_context(prepared_, processes_, mix_key(stream, i), push_.committed());
    const EvalResult result =
        evaluate(context, spec_.eval.datasets[i], prepared_.eval_prompts[i], spec_.rollout.rollout_stop_token_ids);
    eval_.record(result.name, state_.step, result.score);
    line_.update(to_json(result));
    log::info("loop", "eval/" + result.name + " after " + std::to_string(state_.step) +
                          " steps: " + format_number(result.score));
  }
  line_["perf/eval_time"] = seconds_since(begin);
}

void Experiment::save() {
  turns_.for_saving();
  const auto begin = SteadyClock::now();
  const Json size = processes_.trainers().call(0, "/checkpoint_bytes", Json::object());
  require_space(directory_.checkpoints(), static_cast<uint64_t>(json_int(size, "bytes", "trainer rank 0")),
                state_.step);
  const fs::path aside = directory_.checkpoint_aside(state_.step);
  directory_.remove_partial_checkpoints();
  make_directories(aside);
  processes_.trainers().call_all("/save", {{"dir", aside.string()}});
  text::save_tokenizer(*prepared_.tokenizer, aside / "model");
  carry_along(spec_, aside / "model");
  write_loop_state(aside, prepared_.run_id, state_, identity_);
  directory_.publish_checkpoint(state_.step, spec_.checkpoint.keep_last, spec_.checkpoint.keep_every);
  saved_step_ = state_.step;
  log::info("loop", "checkpoint of step " + std::to_string(state_.step) + " written in " +
                        format_seconds(seconds_since(begin)));
}

void Experiment::show_progress() {
  if (progress_ == nullptr || state_.step == first_step_) return;
  const auto done = static_cast<double>(state_.step - first_step_);
  const double per_step = seconds_since(start_) / done;
  const double left = per_step * static_cast<double>(spec_.rollout.num_rollout - state_.step);
  std::string text = "step " + std::to_string(state_.step) + "/" + std::to_string(spec_.rollout.num_rollout);
  if (std::isfinite(rewards_.back())) text += "  reward " + format_number(rewards_.back(), 3);
  if (const double equal = number_in(line_, "rollout/zero_std_groups"); equal > 0) {
    text += "  equal groups " + format_number(equal, 6) + "/" + format_number(number_in(line_, "rollout/groups"), 6);
  }
  if (prepared_.parts.trainers) {
    if (spec_.algorithm.loss_type == "sft") text += "  loss " + format_number(number_in(line_, "train/loss"), 3);
    text += "  grad " + format_number(number_in(line_, "train/grad_norm"), 3);
  }
  if (prepared_.parts.pushes()) text += "  version " + std::to_string(push_.committed());
  text += "  " + format_seconds(per_step) + "/step  " + format_seconds(left) + " left";
  progress_->update(text, SteadyClock::now());
}

}  // namespace vime::loop
