// Rewards: which of the kinds is meant, and what that kind needs.
#include <algorithm>

#include "base/strings.hpp"
#include "spec/checks.hpp"
#include "spec/key_table.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

void check_type(const ExperimentSpec& spec, Problems& problems) {
  const Reward& reward = spec.reward;
  if (!reward.command.empty() && reward.url) {
    problems.add_at("reward.url", "\"reward.command\" and \"reward.url\" are both given; a run has one of them");
    return;
  }
  if (!reward.type && spec.algorithm.loss_type != "sft") {
    problems.add_at("reward.type", "\"reward.type\" is missing; expected " + join(table::reward_types(), ", "));
  }
  if (reward.type == "command" && reward.command.empty()) {
    problems.add_at("reward.type",
                    "\"reward.type\" is command, but \"reward.command\" (a list: the program and its "
                    "arguments) is missing");
  }
  if (reward.type == "http" && !reward.url) {
    problems.add_at("reward.type", "\"reward.type\" is http, but \"reward.url\" is missing");
  }
  const std::string kind = reward.type.value_or("not given");
  const bool outside = kind == "command" || kind == "http";
  if (reward.group_rm && !outside) {
    problems.add_at("reward.group_rm",
                    "\"reward.group_rm\" is for command and http; " + quoted(kind) + " scores every sample alone");
  }
  for (const auto& [key, given, type] : {std::tuple{"reward.command", !reward.command.empty(), "command"},
                                         std::tuple{"reward.url", reward.url.has_value(), "http"}}) {
    if (given && reward.type != type) {
      problems.add_at(key, quoted(key) + " is given, but \"reward.type\" is " + kind + "; it would not be used");
    }
  }
}

// Built-in rewards serve every data set; the command and the service are the run's own.
void check_eval_rewards(const ExperimentSpec& spec, Problems& problems) {
  for (size_t entry = 0; entry < spec.eval.datasets.size(); ++entry) {
    if (!spec.eval.datasets[entry].reward) continue;
    const std::string& type = *spec.eval.datasets[entry].reward;
    if ((type != "command" && type != "http") || type == spec.reward.type) continue;
    const std::string path = entry_path("eval.datasets", entry) + ".reward";
    const std::string given = problems.is_given(path) ? path : "eval.reward";
    if (!problems.sound({given.c_str()})) continue;
    problems.add_at(given, quoted(given) + " is " + type +
                               ", which must then be the run's own \"reward.type\"; that is " +
                               spec.reward.type.value_or("not given"));
  }
}

// Whether a built-in reward compares with a label; a regular expression of the run's own needs none.
bool needs_label(const std::string& type, const Reward& reward) {
  return type != "command" && type != "http" && !(type == "regex" && reward.pattern);
}

void check_labels(const ExperimentSpec& spec, Problems& problems) {
  if (spec.data.label_key) return;
  std::string who;
  if (spec.algorithm.loss_type == "sft") who = "loss_type sft trains on labels";
  if (spec.reward.type && needs_label(*spec.reward.type, spec.reward)) {
    who = "the reward " + *spec.reward.type + " compares with labels";
  }
  for (const EvalDataset& set : spec.eval.datasets) {
    if (set.reward && needs_label(*set.reward, spec.reward))
      who = "the evaluation " + set.name + " compares with labels";
  }
  if (!who.empty()) problems.add_at("data.label_key", "\"data.label_key\" is null, but " + who);
}

// Something must score the answers of every evaluation.
void check_eval_scored(const ExperimentSpec& spec, Problems& problems) {
  if (spec.reward.type) return;
  for (const EvalDataset& set : spec.eval.datasets) {
    if (set.reward) continue;
    problems.add_at("eval.reward", "\"eval.reward\" is missing: the evaluation " + set.name +
                                       " has no reward, and neither has the run (reward.type)");
    return;
  }
}

}  // namespace

void derive_reward(Reward& reward, const Problems& problems) {
  if (problems.is_given("reward.type")) return;
  if (!reward.command.empty()) reward.type = "command";
  if (reward.url && reward.command.empty()) reward.type = "http";
}

void check_reward(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"reward.type", "reward.command", "reward.url", "reward.group_rm", "algorithm.loss_type"}))
    return;
  check_type(spec, problems);
  check_eval_rewards(spec, problems);
  if (problems.sound({"data.label_key", "eval.reward", "eval.datasets"})) {
    check_labels(spec, problems);
    check_eval_scored(spec, problems);
  }
}

}  // namespace vime::spec
