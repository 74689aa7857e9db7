#include "spec/unknown_keys.hpp"

#include <map>
#include <vector>

#include "base/strings.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

// Names that other trainers use, and the keys that mean the same here.
const std::map<std::string, std::vector<std::string>>& synonyms() {
  static const std::map<std::string, std::vector<std::string>> table{
      {"learning_rate", {"trainer.lr"}},
      {"batch_size", {"rollout.rollout_batch_size", "trainer.global_batch_size"}},
      {"train_batch_size", {"trainer.global_batch_size"}},
      {"gradient_clipping", {"trainer.clip_grad"}},
      {"max_grad_norm", {"trainer.clip_grad"}},
      {"beta1", {"trainer.adam_beta1"}},
      {"beta2", {"trainer.adam_beta2"}},
      {"epsilon", {"trainer.adam_eps"}},
      {"tp", {"trainer.tensor_model_parallel_size"}},
      {"tensor_parallel_size", {"trainer.tensor_model_parallel_size"}},
      {"pp", {"trainer.pipeline_model_parallel_size"}},
      {"pipeline_parallel_size", {"trainer.pipeline_model_parallel_size"}},
      {"cp", {"trainer.context_parallel_size"}},
      {"max_new_tokens", {"rollout.rollout_max_response_len"}},
      {"max_tokens", {"rollout.rollout_max_response_len"}},
      {"max_response_length", {"rollout.rollout_max_response_len"}},
      {"max_completion_length", {"rollout.rollout_max_response_len"}},
      {"max_prompt_length", {"rollout.rollout_max_prompt_len"}},
      {"n", {"rollout.n_samples_per_prompt"}},
      {"num_generations", {"rollout.n_samples_per_prompt"}},
      {"group_size", {"rollout.n_samples_per_prompt"}},
      {"samples_per_prompt", {"rollout.n_samples_per_prompt"}},
      {"num_steps", {"rollout.num_rollout"}},
      {"total_steps", {"rollout.num_rollout"}},
      {"stop_token_ids", {"rollout.rollout_stop_token_ids"}},
      {"clip_ratio", {"algorithm.eps_clip"}},
      {"adv_estimator", {"algorithm.advantage_estimator"}},
      {"entropy_coeff", {"algorithm.entropy_coef"}},
      {"disable_grpo_std_normalization", {"algorithm.grpo_std_normalization"}},
      {"disable_rewards_normalization", {"algorithm.rewards_normalization"}},
      {"rm_type", {"reward.type"}},
      {"hf_checkpoint", {"model.path"}},
      {"model_name_or_path", {"model.path"}},
      {"prompt_key", {"data.input_key"}},
      {"reward_type", {"data.reward_key", "reward.type"}},
      {"shuffle", {"data.rollout_shuffle"}},
      {"rollout_seed", {"seed"}},
      {"update_weight_transport", {"weight_sync.transport"}},
      {"buffer_size", {"weight_sync.update_weight_buffer_size"}},
      {"eval_prompt_data", {"eval.prompt_data"}},
      {"eval_temperature", {"eval.temperature"}},
      {"eval_top_p", {"eval.top_p"}},
      {"eval_top_k", {"eval.top_k"}},
      {"eval_datasets", {"eval.datasets"}},
      {"eval_max_response_len", {"eval.max_response_len"}},
      {"save_freq", {"checkpoint.save_interval"}},
      {"save_steps", {"checkpoint.save_interval"}},
      {"save_total_limit", {"checkpoint.keep_last"}},
      {"offload_train", {"offload.train"}},
      {"offload_rollout", {"offload.rollout"}},
  };
  return table;
}

// Flags of slime that have no key of their own here, and why.
const std::map<std::string, std::string>& without_a_key() {
  static const char* const budget = "micro-batches are always cut by trainer.max_tokens_per_gpu";
  static const std::map<std::string, std::string> table{
      {"use_kl_loss", "an algorithm.kl_loss_coef above 0 turns it on"},
      {"micro_batch_size", budget},
      {"use_dynamic_batch_size", budget},
      {"tool_key", "tools are not read from data sets in this version"},
      {"apply_chat_template_kwargs", "chat templates take no arguments in this version"},
      {"num_epoch", "give the length as rollout.num_rollout"},
      {"num_gpus_per_node", "the devices of each node stand in placement.nodes"},
      {"use_tis", "rollouts are on-policy in this version"},
  };
  return table;
}

// The paths of the keys with this name in other sections.
std::vector<std::string> homes_of(const std::string& name) {
  std::vector<std::string> homes;
  for (const Section& section : sections()) {
    if (find_key(section, name) != nullptr) homes.push_back(section.name);
  }
  return homes;
}

// A key as it is written inside `section`: its bare name where it belongs there, its path elsewhere.
std::string as_seen_from(const Section& section, const std::string& path) {
  const std::string prefix = section.name + ".";
  const bool inside = section.name.empty() ? path.find('.') == std::string::npos : path.rfind(prefix, 0) == 0;
  return quoted(inside && !section.name.empty() ? path.substr(prefix.size()) : path);
}

std::string belongs_text(const std::vector<std::string>& homes) {
  std::vector<std::string> places;
  for (const std::string& home : homes) places.push_back(home.empty() ? "at the top level" : "in " + quoted(home));
  return "belongs " + join(places, " or ");
}

// The path of the key whose name is nearest: in the section first, then anywhere, then by the names that others use.
std::string nearest_path(const Section& section, const std::string& name) {
  std::vector<std::string> here, elsewhere;
  std::map<std::string, std::string> paths;
  for (const Key& key : section.keys) {
    here.push_back(key.name);
    paths.emplace("=" + key.name, key_path(section, key));
  }
  for (const Section& other : sections()) {
    for (const Key& key : other.keys) {
      if (other.name == section.name) continue;
      elsewhere.push_back(key.name);
      paths.emplace(key.name, key_path(other, key));
    }
    // Sections are written at the top level.
    if (section.name.empty() && !other.name.empty()) {
      here.push_back(other.name);
      paths.emplace("=" + other.name, other.name);
    }
  }
  const std::string near = nearest_name(name, here);
  if (!near.empty()) return paths["=" + near];
  const std::string far = nearest_name(name, elsewhere);
  if (!far.empty()) return paths[far];
  std::vector<std::string> foreign;
  for (const auto& [word, meant] : synonyms()) {
    if (word.size() > 3) foreign.push_back(word);  // everything is near "n" and "tp"
  }
  const std::string word = nearest_name(name, foreign);
  return word.empty() ? "" : synonyms().at(word).front();
}

std::string names_in(const Section& section) {
  std::vector<std::string> names;
  for (const Key& key : section.keys) names.push_back(key.name);
  if (section.name.empty()) {
    for (const Section& other : sections()) {
      if (!other.name.empty()) names.push_back(other.name);
    }
  }
  return join(names, ", ");
}

}  // namespace

UnknownKey explain_unknown_key(const Section& section, const std::string& name) {
  const std::string where = section.name.empty() ? "at the top level" : "in " + quoted(section.name);
  const std::string unknown = "unknown key " + quoted(name) + " " + where;
  const std::string with_prefix = section.name + "_" + name;
  if (find_key(section, with_prefix) != nullptr) {
    return {unknown + " (did you mean " + quoted(with_prefix) + "?)", section.name + "." + with_prefix};
  }
  const std::vector<std::string> homes = homes_of(name);
  if (!homes.empty()) {
    const std::string only_home = homes[0].empty() ? name : homes[0] + "." + name;
    return {quoted(name) + " " + belongs_text(homes) + ", not " + where, homes.size() == 1 ? only_home : ""};
  }
  if (!section.name.empty() && find_section(name) != nullptr) {
    return {quoted(name) + " is a section and belongs at the top level, not " + where, name};
  }
  const auto synonym = synonyms().find(name);
  if (synonym != synonyms().end()) {
    std::vector<std::string> keys;
    for (const std::string& path : synonym->second) keys.push_back(as_seen_from(section, path));
    return {unknown + " (vime calls it " + join(keys, " or ") + ")",
            synonym->second.size() == 1 ? synonym->second[0] : ""};
  }
  const auto missing = without_a_key().find(name);
  if (missing != without_a_key().end()) return {unknown + ": " + missing->second, ""};
  const std::string nearest = name.size() <= 64 ? nearest_path(section, name) : "";
  if (!nearest.empty()) return {unknown + " (did you mean " + as_seen_from(section, nearest) + "?)", nearest};
  return {unknown + " (known there: " + names_in(section) + ")", ""};
}

}  // namespace vime::spec
