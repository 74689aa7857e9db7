#include "loop/prepare.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "data/builtin.hpp"
#include "reward/builtin.hpp"
#include "spec/placement_request.hpp"

namespace vime::loop {
namespace {

arch::ModelConfig model_config(const spec::ExperimentSpec& spec, const text::Tokenizer& tokenizer) {
  if (spec.model.path) return arch::read_config(*spec.model.path);
  arch::ModelConfig config = arch::preset(*spec.model.preset, tokenizer.vocab_size());
  if (tokenizer.eos_id() >= 0) config.eos_token_ids = {tokenizer.eos_id()};
  if (tokenizer.pad_id() >= 0) config.pad_token_id = tokenizer.pad_id();
  return config;
}

// Characters that suit the data sets, for a preset's tokenizer: those of built-in sets; any file may hold any text.
std::string alphabet_of(const spec::ExperimentSpec& spec) {
  const std::vector<std::string>& sets = spec.data.prompt_data;
  const bool generated = std::all_of(sets.begin(), sets.end(), data::is_builtin);
  return generated ? data::builtin_alphabet(sets.front()) : "";
}

// The template of the model's folder, or of the tokenizer's where the spec names one.
std::shared_ptr<const text::ChatTemplate> chat_template_of(const spec::ExperimentSpec& spec) {
  if (!spec.data.apply_chat_template) return nullptr;
  std::error_code ignored;
  std::vector<std::string> folders;
  if (fs::is_directory(spec.model.tokenizer, ignored)) folders.push_back(spec.model.tokenizer);
  if (spec.model.path) folders.push_back(*spec.model.path);
  for (const std::string& folder : folders) {
    if (std::shared_ptr<const text::ChatTemplate> found = text::load_chat_template(folder)) return found;
  }
  throw Error(ErrorKind::refused,
              "data.apply_chat_template: " +
                  (folders.empty() ? "a preset has no chat template" : "no chat template in " + join(folders, " or ")),
              "expected chat_template.jinja, or \"chat_template\" in tokenizer_config.json");
}

data::PromptSet load_data(const Prepared& prepared, const std::vector<std::string>& prompt_data, const char* key) {
  const spec::ExperimentSpec& spec = prepared.spec;
  const spec::Data& data = spec.data;
  data::LoadOptions options;
  options.prompt_data = prompt_data;
  options.what = key;
  options.input_key = data.input_key;
  options.label_key = data.label_key.value_or("");
  options.metadata_key = data.metadata_key;
  options.reward_key = data.reward_key;
  options.reward_types = reward::builtin_names();
  if (spec.reward.type) options.reward_types.push_back(*spec.reward.type);
  options.apply_chat_template = data.apply_chat_template;
  if (prepared.chat_template) {
    options.render = [chat = prepared.chat_template](const Json& messages) { return chat->render(messages, true); };
  }
  options.max_bad_lines = data.max_bad_lines;
  options.max_line_bytes = static_cast<int64_t>(data.max_line_bytes.count);
  data::PromptSet set = data::load_prompts(options);
  for (const std::string& reason : set.bad_reasons) log::warning("data", "left out: " + reason);
  if (set.bad_lines > 0) {
    log::warning("data", std::string(key) + ": " + std::to_string(set.bad_lines) + " of " + std::to_string(set.lines) +
                             " lines left out");
  }
  return set;
}

int64_t token_count(const text::Tokenizer& tokenizer, const data::Prompt& prompt,
                    const std::vector<std::string>& prompt_data) {
  try {
    return static_cast<int64_t>(tokenizer.encode(prompt.text).size());
  } catch (const Error& error) {
    throw error.within(data::prompt_place(prompt, prompt_data));
  }
}

// Longest prompt that is left; prompts over `limit` are taken out.
int64_t longest_prompt(const text::Tokenizer& tokenizer, std::vector<data::Prompt>& prompts,
                       const std::vector<std::string>& prompt_data, int64_t limit) {
  int64_t longest = 0;
  std::erase_if(prompts, [&](const data::Prompt& prompt) {
    const int64_t count = token_count(tokenizer, prompt, prompt_data);
    if (count <= limit) longest = std::max(longest, count);
    return count > limit;
  });
  return longest;
}

constexpr size_t kProbedPrompts = 1000;  // whose token ids are part of the fingerprint

// Two data sets with the same fingerprint hand out the same prompts, of the same tokens, in the same order.
std::string fingerprint_of(const spec::ExperimentSpec& spec, const text::Tokenizer& tokenizer,
                           const std::vector<data::Prompt>& prompts) {
  Fingerprint fingerprint(spec.data.rollout_shuffle ? 1 : 0);
  for (const data::Prompt& prompt : prompts) {
    fingerprint.add(static_cast<uint64_t>(prompt.id));
    for (const std::string* text : {&prompt.text, &prompt.label, &prompt.metadata, &prompt.reward_type})
      fingerprint.add_text(*text);
  }
  for (size_t i = 0; i < std::min(kProbedPrompts, prompts.size()); ++i) {
    for (const int64_t id : tokenizer.encode(prompts[i].text)) fingerprint.add(static_cast<uint64_t>(id));
  }
  return hex(fingerprint.value());
}

void require_labels(const spec::ExperimentSpec& spec, const std::vector<data::Prompt>& prompts) {
  for (const data::Prompt& prompt : prompts) {
    if (!prompt.label.empty()) continue;
    throw Error(ErrorKind::refused,
                data::prompt_place(prompt, spec.data.prompt_data) +
                    ": the label is empty, and loss_type sft would train on nothing but the end token");
  }
}

// Tokens of the longest training sample.
int64_t prepare_training_prompts(Prepared& prepared) {
  const spec::ExperimentSpec& spec = prepared.spec;
  prepared.prompts = load_data(prepared, spec.data.prompt_data, "data.prompt_data").prompts;
  const auto before = static_cast<int64_t>(prepared.prompts.size());
  const int64_t limit = spec.rollout.rollout_max_prompt_len.value_or(prepared.config.max_position_embeddings);
  const int64_t longest = longest_prompt(*prepared.tokenizer, prepared.prompts, spec.data.prompt_data, limit);
  prepared.prompts_too_long = before - static_cast<int64_t>(prepared.prompts.size());
  if (prepared.prompts.empty()) {
    throw Error(ErrorKind::refused, "data set " + join(spec.data.prompt_data, ", ") + ": all " +
                                        std::to_string(before) + " prompts are longer than " + std::to_string(limit) +
                                        " tokens (rollout_max_prompt_len)");
  }
  if (spec.algorithm.loss_type == "sft") require_labels(spec, prepared.prompts);
  prepared.data_fingerprint = fingerprint_of(spec, *prepared.tokenizer, prepared.prompts);
  return longest + spec.rollout.rollout_max_response_len;
}

// Tokens of the longest evaluation sample; 0 without evaluation.
int64_t prepare_eval_prompts(Prepared& prepared) {
  const spec::ExperimentSpec& spec = prepared.spec;
  int64_t needed = 0;
  for (const spec::EvalDataset& set : spec.eval.datasets) {
    std::vector<data::Prompt>& prompts =
        prepared.eval_prompts.emplace_back(load_data(prepared, {set.prompt_data}, "eval.prompt_data").prompts);
    const int64_t limit = prepared.config.max_position_embeddings - set.max_response_len;
    if (limit < 1) {
      throw Error(ErrorKind::refused, "evaluation " + set.name + ": max_response_len " +
                                          std::to_string(set.max_response_len) +
                                          " leaves no room for a prompt: the model has " +
                                          std::to_string(prepared.config.max_position_embeddings) + " positions");
    }
    if (set.num_samples && prompts.size() > static_cast<size_t>(*set.num_samples)) {
      prepared.notes.push_back("evaluation " + set.name + ": the first " + std::to_string(*set.num_samples) + " of " +
                               std::to_string(prompts.size()) + " prompts (num_samples)");
      prompts.resize(static_cast<size_t>(*set.num_samples));
    }
    const size_t before = prompts.size();
    const int64_t longest = longest_prompt(*prepared.tokenizer, prompts, {set.prompt_data}, limit);
    if (prompts.empty()) {
      throw Error(ErrorKind::refused, "evaluation " + set.name + ": all prompts are longer than " +
                                          std::to_string(limit) + " tokens, what the model has besides the answer");
    }
    if (prompts.size() < before) {
      log::warning("loop", "evaluation " + set.name + ": " + std::to_string(before - prompts.size()) +
                               " prompts are over " + std::to_string(limit) + " tokens and are left out");
    }
    needed = std::max(needed, longest + set.max_response_len);
  }
  return needed;
}

void settle_lengths(Prepared& prepared, int64_t needed) {
  prepared.max_model_len = prepared.spec.engine.max_model_len.value_or(needed);
  if (prepared.max_model_len < needed) {
    throw Error(ErrorKind::refused,
                "engine.max_model_len is " + std::to_string(prepared.max_model_len) +
                    ", but the longest prompt and its response need " + std::to_string(needed),
                "raise it, or leave out long prompts by rollout.rollout_max_prompt_len");
  }
  if (needed > prepared.config.max_position_embeddings) {
    throw Error(ErrorKind::refused,
                "prompts and responses need " + std::to_string(needed) + " positions, the model has " +
                    std::to_string(prepared.config.max_position_embeddings),
                "leave out long prompts by rollout.rollout_max_prompt_len, or lower the max_response_len");
  }
}

// The reference model runs as the policy's definition with other weights.
void require_same_computation(const arch::ModelConfig& policy, const std::string& reference_dir) {
  const std::string difference = arch::first_difference(policy, arch::read_config(reference_dir));
  if (difference.empty()) return;
  throw Error(ErrorKind::refused,
              "model.ref_load: " + reference_dir + "/config.json: " + difference + " as the policy's",
              "the reference must be a model of the policy's shape and settings");
}

// vLLM's attention on CPUs has kernels for these heads alone, in all releases that vime drives.
void require_heads_for_cpu_attention(const Prepared& prepared) {
  constexpr std::array<int64_t, 11> kWidths = {32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512};
  const spec::ExperimentSpec& spec = prepared.spec;
  if (spec.engine.backend != "vllm" || spec.placement.device != "cpu" || !prepared.parts.engines) return;
  const int64_t width = prepared.config.head_dim;
  if (std::find(kWidths.begin(), kWidths.end(), width) != kWidths.end()) return;
  std::vector<std::string> widths;
  for (const int64_t one : kWidths) widths.push_back(std::to_string(one));
  throw Error(ErrorKind::refused,
              "engine.backend is vllm and placement.device cpu, but the model's attention heads are " +
                  std::to_string(width) + " wide; vLLM's attention on CPUs takes " + join(widths, ", "),
              "of the small presets \"tiny-vllm\" has such heads");
}

// Plan, tokenizer and model; what both kinds of run have in common.
Prepared prepare_model(const spec::ExperimentSpec& spec, const std::string& run_id) {
  Prepared prepared;
  prepared.spec = spec;
  prepared.run_id = run_id;
  prepared.parts = parts_of(spec);
  prepared.plan = placement::make_plan(spec::placement_request(spec, run_id));
  prepared.tokenizer = text::tokenizer_for(spec.model.tokenizer, alphabet_of(spec), spec.model.path.value_or(""));
  prepared.config = model_config(spec, *prepared.tokenizer);
  if (prepared.config.vocab_size < prepared.tokenizer->vocab_size()) {
    throw Error(ErrorKind::refused, "the tokenizer has " + std::to_string(prepared.tokenizer->vocab_size()) +
                                        " tokens, the model's vocabulary only " +
                                        std::to_string(prepared.config.vocab_size));
  }
  if (spec.model.ref_load) require_same_computation(prepared.config, *spec.model.ref_load);
  prepared.chat_template = chat_template_of(spec);
  reward::check_options(reward_options(spec, ""));
  require_heads_for_cpu_attention(prepared);
  return prepared;
}

}  // namespace

Parts parts_of(const spec::ExperimentSpec& spec) {
  const bool supervised = spec.algorithm.loss_type == "sft";
  Parts parts;
  parts.trainers = !spec.debug.rollout_only;
  // Supervised training generates for its evaluations only.
  parts.engines = !spec.debug.train_only && !(supervised && !spec.eval.eval_interval);
  return parts;
}

reward::RewardOptions reward_options(const spec::ExperimentSpec& spec, const fs::path& log_folder) {
  const spec::Reward& reward = spec.reward;
  reward::RewardOptions options;
  options.type = reward.type.value_or(options.type);
  options.pattern = reward.pattern.value_or("");
  options.group = reward.group_rm;
  options.reward_key = reward.reward_key;
  options.timeout = reward.timeout;
  options.concurrency = static_cast<int>(reward.concurrency);
  options.command = reward.command;
  options.num_workers = static_cast<int>(reward.num_workers);
  options.startup_timeout = reward.startup_timeout;
  options.max_restarts = static_cast<int>(reward.max_restarts);
  options.log_folder = log_folder.string();
  options.url = reward.url.value_or("");
  options.max_retries = static_cast<int>(reward.max_retries);
  options.retry_backoff = reward.retry_backoff;
  return options;
}

Prepared prepare(const spec::ExperimentSpec& spec, const std::string& run_id) {
  Prepared prepared = prepare_model(spec, run_id);
  if (!prepared.parts.trainers) prepared.engine_weights = *spec.model.path;
  if (spec.debug.load_rollout) return prepared;  // the prompts are in the rollouts
  int64_t needed = prepare_training_prompts(prepared);
  if (spec.eval.eval_interval && prepared.parts.engines) needed = std::max(needed, prepare_eval_prompts(prepared));
  settle_lengths(prepared, needed);
  return prepared;
}

Prepared prepare_evaluation(const spec::ExperimentSpec& spec, const std::string& run_id) {
  if (spec.eval.datasets.empty()) {
    throw Error(ErrorKind::refused,
                "there is nothing to evaluate on: the spec has neither eval.prompt_data nor "
                "eval.datasets");
  }
  Prepared prepared = prepare_model(spec, run_id);
  prepared.parts = {.trainers = false, .engines = true};
  prepared.engine_weights = spec.model.path.value();
  settle_lengths(prepared, prepare_eval_prompts(prepared));
  return prepared;
}

}  // namespace vime::loop
