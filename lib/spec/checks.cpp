#include "spec/checks.hpp"

#include <algorithm>

#include "base/files.hpp"
#include "base/strings.hpp"
#include "spec/keys.hpp"
#include "spec/placement_request.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

std::string text(int64_t number) {
  return std::to_string(number);
}

void check_name(const ExperimentSpec& spec, Problems& problems) {
  const char* allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (!problems.sound({"name"})) return;
  const bool plain = spec.name.size() <= 64 && spec.name.find_first_not_of(allowed) == std::string::npos &&
                     spec.name[0] != '.' && spec.name[0] != '-';
  if (!plain) {
    problems.add_at(
        "name",
        "\"name\" must be at most 64 letters, digits, \"_\", \"-\" and \".\" (it becomes part of file names), found " +
            quoted(spec.name));
  }
}

bool placement_keys_sound(const Problems& problems) {
  return problems.sound({"placement.device", "placement.nodes", "placement.colocate", "placement.actor_num_nodes",
                         "placement.actor_num_gpus_per_node", "placement.rollout_num_gpus",
                         "placement.rollout_num_gpus_per_engine", "placement.allow_engines_across_nodes",
                         "trainer.tensor_model_parallel_size", "trainer.pipeline_model_parallel_size",
                         "trainer.context_parallel_size"});
}

void check_placement(const ExperimentSpec& spec, Problems& problems) {
  if (!placement_keys_sound(problems)) return;
  if (!spec.placement.colocate && !problems.is_given("placement.rollout_num_gpus")) {
    problems.add_at("placement.rollout_num_gpus",
                    "\"placement.rollout_num_gpus\" is missing: engines on devices of their own (colocate is false) "
                    "need their number");
    return;
  }
  for (const placement::Refusal& refusal : placement::refusals(placement_request(spec, ""))) {
    const bool of_layout = find_key(*find_section("trainer"), refusal.key) != nullptr;
    if (!of_layout) problems.add_at("placement." + refusal.key, refusal.sentence);  // check_layout says more
  }
}

// Each transport moves bytes of one kind of memory, and some reach colocated engines only, others never.
void check_transport(const ExperimentSpec& spec, Problems& problems, const Machine& machine) {
  const std::string& transport = spec.weight_sync.transport;
  if (!placement_keys_sound(problems) || !problems.sound({"weight_sync.transport"}) || transport == "auto") return;
  if (transport == "disk") return;
  const bool gpus = spec.placement.device == "cuda";
  if (spec.engine.backend != "embedded" && (transport == "shm" || transport == "tcp")) {
    return problems.add_at("weight_sync.transport", "transport " + transport + " does not reach vLLM servers; use " +
                                                        (gpus ? "auto, cuda_ipc, nccl or disk" : "auto or disk"));
  }
  if (gpus != (transport == "cuda_ipc" || transport == "nccl")) {
    return problems.add_at("weight_sync.transport", "transport " + transport + " does not go with placement.device " +
                                                        spec.placement.device + "; use auto" +
                                                        (gpus ? ", cuda_ipc, nccl or disk" : ", shm, tcp or disk") +
                                                        cpu_reason(machine));
  }
  const placement::Plan plan = placement::make_plan(placement_request(spec, ""));
  const std::string of_engines = " of " + text(static_cast<int64_t>(plan.engines.size())) + " engines ";
  if (transport == "nccl" && !plan.slots.empty()) {
    problems.add_at("weight_sync.transport", "transport nccl needs engines on GPUs of their own, but " +
                                                 text(static_cast<int64_t>(plan.slots.size())) + of_engines +
                                                 "share theirs with the trainer; use auto");
  }
  if ((transport == "shm" || transport == "cuda_ipc") && !plan.overflow_engines.empty()) {
    problems.add_at("weight_sync.transport", "transport " + transport + " reaches colocated engines only, but " +
                                                 text(static_cast<int64_t>(plan.overflow_engines.size())) + of_engines +
                                                 "lie outside the trainer's devices; use auto or " +
                                                 (gpus ? "nccl" : "tcp"));
  }
}

void check_algorithm(const ExperimentSpec& spec, Problems& problems) {
  const Algorithm& algorithm = spec.algorithm;
  if (algorithm.kl_coef != 0 && algorithm.kl_loss_coef != 0) {
    problems.add_at(
        "algorithm.kl_loss_coef",
        "algorithm.kl_coef and algorithm.kl_loss_coef are both set; the KL belongs in the reward or in the loss");
  }
  if (!problems.sound({"engine.logprobs_mode", "rollout.rollout_temperature"})) return;
  if (spec.engine.logprobs_mode == "raw_logprobs" && spec.rollout.rollout_temperature != 1.0) {
    problems.add_at("engine.logprobs_mode",
                    "raw_logprobs are taken before the temperature, so with rollout_temperature " +
                        format_number(spec.rollout.rollout_temperature) +
                        " they are not those of the sampled policy and cannot be compared with the trainer's; use "
                        "processed_logprobs");
  }
}

// `ranks` share the tokens of a sample (context parallelism); `sum_text` says how the longest sample comes about.
void check_length(Problems& problems, const std::string& path, int64_t limit, int64_t ranks, int64_t longest,
                  const std::string& sum_text) {
  if (longest <= limit * ranks) return;
  const std::string shared = ranks > 1 ? " for each of CP " + text(ranks) + " ranks" : "";
  problems.add_at(path, quoted(path) + " is " + text(limit) + shared + ", but a sample can have " + text(longest) +
                            " tokens (" + sum_text + ")");
}

void check_lengths(const ExperimentSpec& spec, Problems& problems) {
  const Rollout& rollout = spec.rollout;
  if (!problems.sound({"rollout.rollout_max_response_len", "rollout.rollout_max_prompt_len"})) return;
  const int64_t prompt = rollout.rollout_max_prompt_len.value_or(1);
  const int64_t longest = prompt + rollout.rollout_max_response_len;
  const std::string prompt_text =
      rollout.rollout_max_prompt_len ? "rollout_max_prompt_len " + text(prompt) : "a prompt of at least 1";
  const std::string sum = prompt_text + " + rollout_max_response_len " + text(rollout.rollout_max_response_len);
  if (problems.sound({"engine.max_model_len"}) && spec.engine.max_model_len) {
    check_length(problems, "engine.max_model_len", *spec.engine.max_model_len, 1, longest, sum);
    for (const EvalDataset& set : spec.eval.datasets) {
      const bool sound = problems.sound({"eval.max_response_len", "eval.datasets", "engine.max_model_len"});
      if (!sound || !spec.eval.eval_interval) continue;
      check_length(
          problems, "engine.max_model_len", *spec.engine.max_model_len, 1, prompt + set.max_response_len,
          prompt_text + " + max_response_len " + text(set.max_response_len) + " of the evaluation " + quoted(set.name));
    }
  }
  if (problems.sound({"trainer.max_tokens_per_gpu"})) {
    const int64_t ranks = problems.sound({"trainer.context_parallel_size"}) ? spec.trainer.context_parallel_size : 1;
    check_length(problems, "trainer.max_tokens_per_gpu", spec.trainer.max_tokens_per_gpu, ranks, longest, sum);
  }
}

}  // namespace

void derive_values(ExperimentSpec& spec, const Problems& problems, Machine& machine) {
  derive_machine(spec, problems, machine);
  derive_engine(spec, problems);
  derive_batches(spec, problems);
  derive_training(spec, problems);
  derive_reward(spec.reward, problems);
  if (!problems.is_given("algorithm.eps_clip_high")) spec.algorithm.eps_clip_high = spec.algorithm.eps_clip;
  if (spec.rollout.n_samples_per_prompt == 1) spec.algorithm.grpo_std_normalization = false;
  derive_eval(spec, problems);
  derive_data(spec, problems);
}

void check_spec(const ExperimentSpec& spec, Problems& problems, const Machine& machine) {
  check_name(spec, problems);
  const std::optional<arch::ModelConfig> model = check_model(spec, problems);
  check_machine(spec, problems, machine);
  check_engine(spec, problems);
  check_placement(spec, problems);
  check_layout(spec, model, problems);
  check_transport(spec, problems, machine);
  check_batches(spec, problems);
  check_training(spec, problems);
  check_reward(spec, problems);
  check_algorithm(spec, problems);
  check_lengths(spec, problems);
  check_data(spec, problems);
  check_eval(spec, problems);
}

}  // namespace vime::spec
