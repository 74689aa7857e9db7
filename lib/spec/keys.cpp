#include "spec/keys.hpp"

namespace vime::spec {
namespace {

#define FIELD(path) [](ExperimentSpec& spec) -> Field { return &spec.path; }

Limits at_least(double least) {
  return {.least = least};
}
Limits above(double least) {
  return {.least = least, .least_excluded = true};
}
Limits between(double least, double most) {
  return {.least = least, .most = most};
}
Limits share_below_one() {
  return {.least = 0, .most = 1, .most_excluded = true};
}
Limits only(double value) {
  return between(value, value);
}
// Counts: large enough for every job, small enough that the products of three fit in 64 bits.
Limits count() {
  return between(1, 1e6);
}

Section top_level() {
  return {"",
          "",
          {{.name = "name", .field = FIELD(name), .doc = "Name of the experiment, shown in logs and reports."},
           {.name = "seed",
            .field = FIELD(seed),
            .doc = "Seed of weights, data order and sampling.",
            .limits = between(0, 9007199254740991.0)},
           {.name = "ci_test",
            .field = FIELD(ci_test),
            .doc = "Every self-check that fails ends the run with exit status 3; the same as `--ci-test`."}}};
}

Section model() {
  return {
      "model",
      "What is trained: exactly one of `path` and `preset`.",
      {{.name = "path",
        .field = FIELD(model.path),
        .doc = "Folder with a Hugging Face `config.json`, weights and tokenizer."},
       {.name = "preset",
        .field = FIELD(model.preset),
        .doc = "A small model of this name, from random weights (`tiny`: 2 layers, about 100 thousand parameters)."},
       {.name = "tokenizer",
        .field = FIELD(model.tokenizer),
        .doc = "`auto`: the model folder's, or the built-in data set's for a preset.",
        .choices = {"auto"},
        .reason = "other tokenizers are not read in this version"}}};
}

Section data() {
  return {"data",
          "The prompts to train on.",
          {{.name = "prompt_data",
            .field = FIELD(data.prompt_data),
            .doc = "Name of a built-in data set (`builtin:sort_digits`: four digits and `=`; the answer is the digits "
                   "in order).",
            .choices = {"builtin:sort_digits"},
            .reason = "prompt files are not read in this version",
            .required = true},
           {.name = "rollout_shuffle",
            .field = FIELD(data.rollout_shuffle),
            .doc = "Draw the prompts in an order shuffled by `seed`, a new one for each pass over the data."}}};
}

Section reward() {
  return {
      "reward",
      "How a sample is scored for training.",
      {{.name = "type",
        .field = FIELD(reward.type),
        .doc =
            "`exact_match`: 1 or 0. `position_match`: half for the share of right positions, half for an exact answer.",
        .choices = {"position_match", "exact_match"},
        .required = true}}};
}

Section placement() {
  const Limits devices = between(1, 100000);
  return {
      "placement",
      "Which devices the trainer ranks and the engines get.",
      {{.name = "device",
        .field = FIELD(placement.device),
        .doc = "`cpu`: any number of virtual devices on this machine. `auto` is `cpu`.",
        .choices = {"auto", "cpu"},
        .reason = "GPUs are not driven in this version",
        .derived = "`cpu`"},
       {.name = "nodes",
        .field = FIELD(placement.nodes),
        .doc = "Devices of each node, for example `[4, 8, 2]`.",
        .limits = devices,
        .derived = "as many devices as the job needs"},
       {.name = "colocate",
        .field = FIELD(placement.colocate),
        .doc =
            "Engines share the trainer's devices, beginning with device 0; otherwise they lie behind the trainer's."},
       {.name = "actor_num_nodes",
        .field = FIELD(placement.actor_num_nodes),
        .doc = "Nodes of the trainer.",
        .limits = devices},
       {.name = "actor_num_gpus_per_node",
        .field = FIELD(placement.actor_num_gpus_per_node),
        .doc = "Trainer ranks (one per device) on each of its nodes.",
        .limits = devices},
       {.name = "rollout_num_gpus",
        .field = FIELD(placement.rollout_num_gpus),
        .doc =
            "Devices of all engines together; more than the trainer's are allowed when colocated (overflow engines).",
        .limits = devices,
        .derived = "the trainer's number when colocated; required otherwise"},
       {.name = "rollout_num_gpus_per_engine",
        .field = FIELD(placement.rollout_num_gpus_per_engine),
        .doc = "Devices of one engine, each with one worker.",
        .limits = devices},
       {.name = "allow_engines_across_nodes",
        .field = FIELD(placement.allow_engines_across_nodes),
        .doc = "Let an engine span nodes; otherwise one that would is refused."}}};
}

Section trainer() {
  const char* not_yet = "the trainer is data-parallel only in this version";
  return {"trainer",
          "Parallel layout, batches and optimizer (AdamW) of the trainer.",
          {{.name = "tensor_model_parallel_size",
            .field = FIELD(trainer.tensor_model_parallel_size),
            .doc = "TP of the trainer.",
            .limits = only(1),
            .reason = not_yet},
           {.name = "pipeline_model_parallel_size",
            .field = FIELD(trainer.pipeline_model_parallel_size),
            .doc = "PP of the trainer.",
            .limits = only(1),
            .reason = not_yet},
           {.name = "context_parallel_size",
            .field = FIELD(trainer.context_parallel_size),
            .doc = "CP of the trainer.",
            .limits = only(1),
            .reason = not_yet},
           {.name = "global_batch_size",
            .field = FIELD(trainer.global_batch_size),
            .doc = "Samples of one optimizer step; divides the samples of a rollout and is a multiple of DP.",
            .limits = between(1, 1e12),
            .derived = "samples of a rollout / `num_steps_per_rollout`"},
           {.name = "num_steps_per_rollout",
            .field = FIELD(trainer.num_steps_per_rollout),
            .doc = "Optimizer steps on each rollout.",
            .limits = count(),
            .derived = "samples of a rollout / `global_batch_size`; 1 when neither is given"},
           {.name = "lr", .field = FIELD(trainer.lr), .doc = "Learning rate, constant.", .limits = at_least(0)},
           {.name = "adam_beta1",
            .field = FIELD(trainer.adam_beta1),
            .doc = "AdamW's decay of the first moment.",
            .limits = share_below_one()},
           {.name = "adam_beta2",
            .field = FIELD(trainer.adam_beta2),
            .doc = "AdamW's decay of the second moment.",
            .limits = share_below_one()},
           {.name = "adam_eps",
            .field = FIELD(trainer.adam_eps),
            .doc = "AdamW's term in the denominator.",
            .limits = above(0)},
           {.name = "weight_decay",
            .field = FIELD(trainer.weight_decay),
            .doc = "AdamW's decoupled weight decay.",
            .limits = at_least(0)},
           {.name = "clip_grad",
            .field = FIELD(trainer.clip_grad),
            .doc = "Largest norm of the gradient; 0 = no clipping.",
            .limits = at_least(0)},
           {.name = "max_tokens_per_gpu",
            .field = FIELD(trainer.max_tokens_per_gpu),
            .doc = "Most tokens (prompt and response) in one micro-batch of a rank.",
            .limits = between(1, 1e9)},
           {.name = "dtype",
            .field = FIELD(trainer.dtype),
            .doc = "Type of weights and arithmetic.",
            .choices = {"auto", "float32"},
            .reason = "the CPU trainer works in float32",
            .derived = "`float32`"}}};
}

Section algorithm() {
  const char* no_reference = "there is no reference model in this version";
  return {"algorithm",
          "Advantages and the policy loss.",
          {{.name = "advantage_estimator",
            .field = FIELD(algorithm.advantage_estimator),
            .doc = "`grpo`: ratio per token. `gspo`: ratio per sequence. `cispo`: clipped ratio as a constant weight.",
            .choices = {"grpo", "gspo", "cispo"}},
           {.name = "eps_clip",
            .field = FIELD(algorithm.eps_clip),
            .doc = "The ratio is clipped below at 1 - eps_clip.",
            .limits = at_least(0)},
           {.name = "eps_clip_high",
            .field = FIELD(algorithm.eps_clip_high),
            .doc = "The ratio is clipped above at 1 + eps_clip_high.",
            .limits = at_least(0),
            .derived = "`eps_clip`"},
           {.name = "eps_clip_c",
            .field = FIELD(algorithm.eps_clip_c),
            .doc = "Dual clip: bound of the loss, times the advantage, where the advantage is negative; null = off.",
            .limits = above(1)},
           {.name = "entropy_coef",
            .field = FIELD(algorithm.entropy_coef),
            .doc = "Weight of the entropy bonus.",
            .limits = at_least(0)},
           {.name = "kl_coef",
            .field = FIELD(algorithm.kl_coef),
            .doc = "Weight of the KL to a reference model in the reward.",
            .limits = only(0),
            .reason = no_reference},
           {.name = "kl_loss_coef",
            .field = FIELD(algorithm.kl_loss_coef),
            .doc = "Weight of the KL to a reference model in the loss.",
            .limits = only(0),
            .reason = no_reference},
           {.name = "rewards_normalization",
            .field = FIELD(algorithm.rewards_normalization),
            .doc = "Subtract the mean reward of a sample's group."},
           {.name = "grpo_std_normalization",
            .field = FIELD(algorithm.grpo_std_normalization),
            .doc = "Also divide by the group's standard deviation; off when `n_samples_per_prompt` is 1."},
           {.name = "calculate_per_token_loss",
            .field = FIELD(algorithm.calculate_per_token_loss),
            .doc = "Average the loss over all tokens of a step, not over samples first."}}};
}

Section rollout() {
  const char* full_vocabulary =
      "the trainer's log-probs are over the full vocabulary, so training on samples from a part of it would be biased";
  return {"rollout",
          "Generating samples.",
          {{.name = "num_rollout",
            .field = FIELD(rollout.num_rollout),
            .doc = "Rollouts of the run.",
            .limits = between(1, 1e9),
            .required = true},
           {.name = "rollout_batch_size",
            .field = FIELD(rollout.rollout_batch_size),
            .doc = "Prompts of one rollout.",
            .limits = count(),
            .required = true},
           {.name = "n_samples_per_prompt",
            .field = FIELD(rollout.n_samples_per_prompt),
            .doc = "Samples of each prompt; together they are a group.",
            .limits = count()},
           {.name = "rollout_max_response_len",
            .field = FIELD(rollout.rollout_max_response_len),
            .doc = "Most tokens of a response.",
            .limits = between(1, 1e8),
            .required = true},
           {.name = "rollout_max_prompt_len",
            .field = FIELD(rollout.rollout_max_prompt_len),
            .doc = "Most tokens of a prompt; null = no limit of its own.",
            .limits = between(1, 1e8)},
           {.name = "rollout_temperature",
            .field = FIELD(rollout.rollout_temperature),
            .doc = "Sampling temperature; the trainer divides its logits by it too.",
            .limits = above(0)},
           {.name = "rollout_top_p",
            .field = FIELD(rollout.rollout_top_p),
            .doc = "Nucleus sampling; 1 = off.",
            .limits = only(1),
            .reason = full_vocabulary},
           {.name = "rollout_top_k",
            .field = FIELD(rollout.rollout_top_k),
            .doc = "Sample from the k likeliest tokens; -1 = off.",
            .limits = only(-1),
            .reason = full_vocabulary},
           {.name = "rollout_stop_token_ids",
            .field = FIELD(rollout.rollout_stop_token_ids),
            .doc = "Tokens that end a response, besides the model's own end tokens.",
            .limits = between(0, 2147483647)}}};
}

Section engine() {
  const Limits timeout = between(1, 7 * 86400e3);
  return {"engine",
          "The rollout engines.",
          {{.name = "backend",
            .field = FIELD(engine.backend),
            .doc = "`embedded`: vime's own engine.",
            .choices = {"embedded"},
            .reason = "other engines are not driven in this version"},
           {.name = "max_model_len",
            .field = FIELD(engine.max_model_len),
            .doc = "Most tokens of prompt and response together; null = what the longest prompt and response need.",
            .limits = between(2, 1e8)},
           {.name = "max_num_seqs",
            .field = FIELD(engine.max_num_seqs),
            .doc = "Sequences that an engine computes at once; more requests wait their turn.",
            .limits = between(1, 65536)},
           {.name = "logprobs_mode",
            .field = FIELD(engine.logprobs_mode),
            .doc = "`processed_logprobs`: after the temperature. `raw_logprobs`: before it.",
            .choices = {"processed_logprobs", "raw_logprobs"}},
           {.name = "startup_timeout",
            .field = FIELD(engine.startup_timeout),
            .doc = "How long an engine may take until it serves.",
            .limits = timeout},
           {.name = "request_timeout",
            .field = FIELD(engine.request_timeout),
            .doc = "How long one request may take.",
            .limits = timeout}}};
}

Section weight_sync() {
  return {"weight_sync",
          "Pushing the trainer's weights to the engines.",
          {{.name = "transport",
            .field = FIELD(weight_sync.transport),
            .doc = "`shm`: shared memory, colocated engines only. `tcp`: the network. `auto`: `shm` where an engine is "
                   "colocated, `tcp` elsewhere.",
            .choices = {"auto", "shm", "tcp"}},
           {.name = "update_weight_buffer_size",
            .field = FIELD(weight_sync.update_weight_buffer_size),
            .doc = "Bytes sent at once; a larger tensor is sent alone.",
            .limits = between(1, 1099511627776.0)},
           {.name = "timeout",
            .field = FIELD(weight_sync.timeout),
            .doc = "How long one push may take.",
            .limits = between(1, 7 * 86400e3)}}};
}

Section eval() {
  return {"eval",
          "Evaluation during training.",
          {{.name = "eval_interval",
            .field = FIELD(eval.eval_interval),
            .doc = "Evaluate after every so many rollouts; null = never.",
            .limits = between(1, 1e9)},
           {.name = "prompt_data",
            .field = FIELD(eval.prompt_data),
            .doc = "Data set; needed with `eval_interval`. `/heldout`: the prompts that training never shows.",
            .choices = {"builtin:sort_digits/heldout", "builtin:sort_digits"},
            .reason = "prompt files are not read in this version"},
           {.name = "reward",
            .field = FIELD(eval.reward),
            .doc = "How an answer is scored; see `reward.type`.",
            .choices = {"position_match", "exact_match"}},
           {.name = "num_samples",
            .field = FIELD(eval.num_samples),
            .doc = "Prompts of one evaluation, one answer each; all of the data set when it has fewer.",
            .limits = count()},
           {.name = "temperature",
            .field = FIELD(eval.temperature),
            .doc = "Sampling temperature; 0 = greedy.",
            .limits = at_least(0)},
           {.name = "max_response_len",
            .field = FIELD(eval.max_response_len),
            .doc = "Most tokens of an answer.",
            .limits = between(1, 1e8),
            .derived = "`rollout.rollout_max_response_len`"},
           {.name = "skip_eval_before_train",
            .field = FIELD(eval.skip_eval_before_train),
            .doc = "Leave out the evaluation before the first rollout."}}};
}

Section checkpoint() {
  return {"checkpoint",
          "Checkpoints in Hugging Face format; every run ends with one.",
          {{.name = "save_interval",
            .field = FIELD(checkpoint.save_interval),
            .doc = "Save after every so many rollouts; null = only at the end.",
            .limits = between(1, 1e9)},
           {.name = "keep_last",
            .field = FIELD(checkpoint.keep_last),
            .doc = "Older checkpoints than the last so many are removed.",
            .limits = count()}}};
}

Section ci() {
  return {"ci",
          "Bounds of the self-checks; a breach is a warning, and a failure under `ci_test`.",
          {{.name = "kl_tolerance",
            .field = FIELD(ci.kl_tolerance),
            .doc = "Largest size of the KL between old and new policy in the first step.",
            .limits = above(0)},
           {.name = "logprob_gap_tolerance",
            .field = FIELD(ci.logprob_gap_tolerance),
            .doc = "Largest mean difference between the trainer's and the engine's log-probs.",
            .limits = above(0)}}};
}

#undef FIELD

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> all{top_level(), model(),      data(),    reward(), placement(),
                                        trainer(),   algorithm(),  rollout(), engine(), weight_sync(),
                                        eval(),      checkpoint(), ci()};
  return all;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Key* find_key(const Section& section, const std::string& name) {
  for (const Key& key : section.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string key_path(const Section& section, const Key& key) {
  return section.name.empty() ? key.name : section.name + "." + key.name;
}

}  // namespace vime::spec
