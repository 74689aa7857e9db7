#include "loop/rollouts.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "loop/generate.hpp"
#include "rollout/metrics.hpp"

namespace vime::loop {
namespace {

constexpr int64_t kKeptRollouts = 8;

fs::path rollout_in(const fs::path& folder, int64_t rollout_id) {
  char name[64];
  std::snprintf(name, sizeof name, "rollout_%06lld", static_cast<long long>(rollout_id));
  return folder / name;
}

fs::path with_extension(const fs::path& path, const char* extension) {
  return path.string() + extension;
}

Json tally_json(const reward::Tally& tally) {
  Json json = Json::object();
  for (size_t reason = 1; reason < reward::kMissingReasons; ++reason) {
    if (tally.missing[reason] == 0) continue;
    json[std::string("reward/missing/") + reward::missing_name(static_cast<reward::Missing>(reason))] =
        tally.missing[reason];
  }
  return json;
}

// The tokenizer's own end token ends a turn; a model's list may begin with the one that ends a document.
std::optional<int64_t> end_token_of(const Prepared& prepared) {
  if (prepared.tokenizer->eos_id() >= 0) return prepared.tokenizer->eos_id();
  if (!prepared.config.eos_token_ids.empty()) return prepared.config.eos_token_ids.front();
  return std::nullopt;
}

// A copy that appears whole.
void copy_into(const fs::path& from, const fs::path& folder) {
  make_directories(folder);
  write_file_atomic(folder / from.filename(), read_file(from));
}

}  // namespace

GenerateContext generate_context(const Prepared& prepared, Processes& processes, uint64_t seed,
                                 int64_t weight_version) {
  return {processes.fleet(),
          processes.supervisor(),
          *prepared.tokenizer,
          processes.rewards(),
          prepared.spec.reward.group_rm,
          prepared.spec.reward.max_missing_ratio,
          seed,
          weight_version};
}

rollout::Sample labelled_sample(const text::Tokenizer& tokenizer, std::optional<int64_t> end_token,
                                const data::Prompt& prompt, int64_t most_tokens) {
  rollout::Sample sample;
  sample.prompt_id = prompt.id;
  sample.prompt = prompt.text;
  sample.label = prompt.label;
  sample.tokens = tokenizer.encode(prompt.text);
  std::vector<int64_t> response = tokenizer.encode(prompt.label);
  if (end_token) response.push_back(*end_token);
  if (static_cast<int64_t>(response.size()) > most_tokens) {
    response.resize(static_cast<size_t>(most_tokens));
    sample.state = rollout::SampleState::truncated;
  }
  sample.response = tokenizer.decode(response);
  sample.tokens.insert(sample.tokens.end(), response.begin(), response.end());
  sample.response_len = static_cast<int64_t>(response.size());
  sample.rollout_logprobs.assign(response.size(), 0.0);  // nobody sampled them
  sample.reward = 0.0;
  sample.finish_reason = sample.state == rollout::SampleState::truncated ? "length" : "stop";
  return sample;
}

void require_rollouts(const fs::path& folder, int64_t count) {
  int64_t there = 0;
  std::error_code ignored;
  while (there < count && fs::exists(with_extension(rollout_in(folder, there), ".safetensors"), ignored)) ++there;
  if (there == count) return;
  throw Error(ErrorKind::refused,
              "debug.load_rollout: expected " + std::to_string(count) + " rollouts (rollout.num_rollout) in " +
                  folder.string() + ", but " + rollout_in("", there).string() + ".safetensors is missing",
              there == 0 ? "" : "set rollout.num_rollout to " + std::to_string(there));
}

void require_no_rollouts(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw Error(ErrorKind::refused, "debug.save_rollout: " + folder.string() + " is not a folder");
  }
  if (!fs::exists(with_extension(rollout_in(folder, 0), ".safetensors"), error)) return;
  throw Error(ErrorKind::refused, "debug.save_rollout: " + folder.string() + " holds the rollouts of another run",
              "name an empty folder");
}

Rollouts::Rollouts(Prepared& prepared, const RunDirectory& directory, Processes& processes)
    : prepared_(prepared), spec_(prepared.spec), directory_(directory), processes_(processes) {
  if (spec_.debug.load_rollout) return;
  source_ = std::make_unique<data::DataSource>(
      std::move(prepared.prompts), mix_key(static_cast<uint64_t>(spec_.seed), kDataStream), spec_.data.rollout_shuffle);
}

Rollout Rollouts::next(LoopState& state, int64_t weight_version) {
  const auto begin = SteadyClock::now();
  Rollout rollout = spec_.debug.load_rollout             ? loaded(state)
                    : spec_.algorithm.loss_type == "sft" ? labelled(state, weight_version)
                                                         : generated(state, weight_version);
  directory_.prune_rollouts(state.step, kKeptRollouts);
  const double seconds = seconds_since(begin);
  rollout.metrics["perf/rollout_time"] = seconds;
  return rollout;
}

std::vector<data::Prompt> Rollouts::next_prompts(LoopState& state) {
  source_->seek(state.data);
  std::vector<data::Prompt> prompts = source_->next(spec_.rollout.rollout_batch_size);
  state.data = source_->position();
  return prompts;
}

Rollout Rollouts::generated(LoopState& state, int64_t weight_version) {
  const auto begin = SteadyClock::now();
  const std::vector<data::Prompt> prompts = next_prompts(state);
  Request request{"sample", prompts, spec_.rollout.n_samples_per_prompt, {}, ""};
  request.sampling = {spec_.rollout.rollout_temperature, spec_.rollout.rollout_top_p, spec_.rollout.rollout_top_k,
                      spec_.rollout.rollout_max_response_len, spec_.rollout.rollout_stop_token_ids};
  request.first_sample = state.next_sample;
  request.first_group = state.next_group;
  const GenerateContext context = generate_context(
      prepared_, processes_, mix_key(static_cast<uint64_t>(spec_.seed), kRolloutStream), weight_version);
  const Generated generated = generate(context, request);
  const double seconds = seconds_since(begin);
  state.next_sample += static_cast<int64_t>(generated.samples.size());
  state.next_group += static_cast<int64_t>(prompts.size());

  Rollout rollout;
  const rollout::RolloutMetrics figures = rollout::rollout_metrics(generated.samples);
  rollout.metrics = rollout::to_json(figures);
  rollout.metrics.update(tally_json(generated.tally));
  rollout.metrics["perf/tokens_per_gpu_per_sec"] = figures.response_len_mean * static_cast<double>(figures.samples) /
                                                   seconds / static_cast<double>(spec_.placement.rollout_num_gpus);
  rollout.raw_reward = figures.raw_reward;
  algo::GroupAdvantageOptions advantage;
  advantage.std_normalization = spec_.algorithm.grpo_std_normalization;
  rollout::TrainBatch batch =
      rollout::make_train_batch(generated.samples, prepared_.run_id, state.step, weight_version, advantage);
  if (!spec_.algorithm.rewards_normalization) batch.advantages = batch.rewards;
  rollout.batch = keep(state.step, generated.samples, batch);
  return rollout;
}

Rollout Rollouts::labelled(LoopState& state, int64_t weight_version) {
  const std::optional<int64_t> end_token = end_token_of(prepared_);
  std::vector<rollout::Sample> samples;
  for (const data::Prompt& prompt : next_prompts(state)) {
    samples.push_back(labelled_sample(*prepared_.tokenizer, end_token, prompt, spec_.rollout.rollout_max_response_len));
    samples.back().index = state.next_sample++;
    samples.back().group_id = state.next_group++;
    samples.back().weight_version_first = samples.back().weight_version_last = weight_version;
  }
  Rollout rollout;
  const rollout::RolloutMetrics figures = rollout::rollout_metrics(samples);
  rollout.metrics = {{"rollout/response_len/mean", figures.response_len_mean},
                     {"rollout/response_len/max", figures.response_len_max},
                     {"rollout/truncated_ratio", figures.truncated_ratio},
                     {"rollout/samples", figures.samples}};
  rollout.raw_reward = std::nan("");
  const rollout::TrainBatch batch =
      rollout::make_train_batch(samples, prepared_.run_id, state.step, weight_version, {});
  for (rollout::Sample& sample : samples) sample.reward.reset();  // nothing scored them
  rollout.batch = keep(state.step, samples, batch);
  return rollout;
}

Rollout Rollouts::loaded(const LoopState& state) {
  const fs::path from = rollout_in(*spec_.debug.load_rollout, state.step);
  rollout::TrainBatch batch = rollout::read_train_batch(with_extension(from, ".safetensors"));
  const int64_t expected = spec_.rollout.rollout_batch_size * spec_.rollout.n_samples_per_prompt;
  if (batch.samples() != expected) {
    throw Error(ErrorKind::process_failed, from.string() + ".safetensors has " + std::to_string(batch.samples()) +
                                               " samples, expected " + std::to_string(expected) +
                                               " (rollout_batch_size x n_samples_per_prompt)");
  }
  batch.run_id = prepared_.run_id;  // from here on it is a rollout of this run
  Rollout rollout;
  double rewards = 0.0, rewarded = 0.0, tokens = 0.0;
  for (size_t i = 0; i < batch.rewards.size(); ++i) {
    rewards += batch.rewards[i];
    rewarded += batch.has_reward[i];
    tokens += static_cast<double>(batch.response_lengths[i]);
  }
  rollout.raw_reward = rewarded > 0 ? rewards / rewarded : std::nan("");
  rollout.metrics = {{"rollout/raw_reward", rollout.raw_reward},
                     {"rollout/response_len/mean", tokens / static_cast<double>(batch.samples())},
                     {"rollout/samples", batch.samples()}};
  rollout.batch = with_extension(directory_.rollout(state.step), ".safetensors");
  rollout::write_train_batch(rollout.batch, batch);
  std::error_code ignored;
  if (fs::exists(with_extension(from, ".jsonl"), ignored)) {
    copy_into(with_extension(from, ".jsonl"), directory_.rollout(state.step).parent_path());
  }
  return rollout;
}

fs::path Rollouts::keep(int64_t rollout_id, const std::vector<rollout::Sample>& samples,
                        const rollout::TrainBatch& batch) {
  const fs::path path = directory_.rollout(rollout_id);
  const fs::path text = with_extension(path, ".jsonl"), tensors = with_extension(path, ".safetensors");
  rollout::write_samples_jsonl(text, samples);
  rollout::write_train_batch(tensors, batch);
  if (spec_.debug.save_rollout) {
    copy_into(text, *spec_.debug.save_rollout);
    copy_into(tensors, *spec_.debug.save_rollout);
  }
  return tensors;
}

}  // namespace vime::loop
