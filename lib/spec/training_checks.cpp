// The learning-rate schedule, the kind of loss, and the debug modes: what they derive and what they rule out.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/files.hpp"
#include "base/strings.hpp"
#include "spec/checks.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

std::string text(int64_t number) {
  return std::to_string(number);
}

// Workers and later runs read the resolved spec from other folders, and a link such as checkpoints/latest moves on.
void make_absolute(std::optional<std::string>& path) {
  if (!path) return;
  std::error_code error;
  const fs::path real = fs::canonical(*path, error);
  path = (error ? fs::absolute(*path).lexically_normal() : real).string();
}

int64_t warmup_of(const Trainer& trainer) {
  return std::llround(*trainer.lr_warmup_fraction * static_cast<double>(trainer.lr_decay_iters));
}

void check_schedule(const ExperimentSpec& spec, Problems& problems) {
  const Trainer& trainer = spec.trainer;
  if (problems.sound({"trainer.lr", "trainer.min_lr"}) && trainer.min_lr > trainer.lr) {
    problems.add_at("trainer.min_lr", "\"trainer.min_lr\" (" + format_number(trainer.min_lr) +
                                          ") is larger than \"trainer.lr\" (" + format_number(trainer.lr) + ")");
  }
  if (!problems.sound({"trainer.lr_decay_style", "trainer.lr_warmup_iters", "trainer.lr_decay_iters"})) return;
  if (trainer.lr_decay_style != "constant" && trainer.lr_warmup_iters >= trainer.lr_decay_iters) {
    problems.add_at("trainer.lr_warmup_iters", "the warm-up of " + text(trainer.lr_warmup_iters) +
                                                   " optimizer steps leaves none to decay over: lr_decay_iters is " +
                                                   text(trainer.lr_decay_iters) + ", warm-up included");
  }
  const int64_t steps = spec.rollout.num_rollout * trainer.num_steps_per_rollout;
  if (trainer.lr_decay_style != "constant" && trainer.min_lr == 0 && trainer.lr > 0 && trainer.lr_decay_iters < steps &&
      problems.sound({"rollout.num_rollout", "trainer.num_steps_per_rollout", "trainer.min_lr", "trainer.lr"})) {
    problems.add_at("trainer.lr_decay_iters",
                    "the learning rate reaches 0 at optimizer step " + text(trainer.lr_decay_iters) + " of " +
                        text(steps) + " (lr_decay_iters), so the rest would train nothing; give lr_decay_iters " +
                        text(steps) + " or a \"trainer.min_lr\"");
  }
  if (problems.is_given("trainer.lr_warmup_iters") && trainer.lr_warmup_fraction &&
      trainer.lr_warmup_iters != warmup_of(trainer)) {
    problems.add_at("trainer.lr_warmup_iters", "\"trainer.lr_warmup_iters\" is " + text(trainer.lr_warmup_iters) +
                                                   ", but lr_warmup_fraction says " + text(warmup_of(trainer)) +
                                                   "; give one of the two");
  }
  if (trainer.lr_decay_style == "constant" && problems.is_given("trainer.min_lr") && trainer.min_lr > 0 &&
      trainer.min_lr < trainer.lr) {
    problems.add_at("trainer.min_lr",
                    "\"trainer.min_lr\" has no effect: lr_decay_style is constant; choose linear or cosine");
  }
}

// A resolved spec gives every key, so a default says nothing.
void check_optimizer(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"trainer.optimizer"}) || spec.trainer.optimizer == "adam") return;
  const Trainer& given = spec.trainer;
  const Trainer usual;
  const std::pair<const char*, bool> moments[] = {{"trainer.adam_beta1", given.adam_beta1 != usual.adam_beta1},
                                                  {"trainer.adam_beta2", given.adam_beta2 != usual.adam_beta2},
                                                  {"trainer.adam_eps", given.adam_eps != usual.adam_eps}};
  for (const auto& [key, changed] : moments) {
    if (!changed || !problems.sound({key})) continue;
    problems.add_at(key, quoted(key) + " has no effect: optimizer is " + spec.trainer.optimizer + "; choose adam");
  }
}

void check_reference(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"model.ref_load", "algorithm.kl_loss_coef"}) || !spec.model.ref_load) return;
  if (spec.algorithm.kl_loss_coef == 0.0) {
    problems.add_at("model.ref_load",
                    "\"model.ref_load\" names a reference model, but \"algorithm.kl_loss_coef\" is 0: it would not be "
                    "used");
  }
  std::error_code ignored;
  if (!fs::is_regular_file(fs::path(*spec.model.ref_load) / "config.json", ignored)) {
    problems.add_at("model.ref_load", "\"model.ref_load\": there is no folder " + quoted(*spec.model.ref_load) +
                                          " with a config.json; expected a model in Hugging Face format");
  }
}

void check_groups(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"rollout.n_samples_per_prompt", "algorithm.rewards_normalization", "algorithm.loss_type"}))
    return;
  const bool compared = spec.algorithm.loss_type != "sft" && spec.algorithm.rewards_normalization;
  if (!compared || spec.rollout.n_samples_per_prompt != 1 || spec.debug.rollout_only) return;
  problems.add_at(
      "rollout.n_samples_per_prompt",
      "\"rollout.n_samples_per_prompt\" is 1: a sample alone in its group has advantage 0 and teaches nothing; "
      "ask for more, or set \"algorithm.rewards_normalization\" to false");
}

void check_supervised(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"algorithm.loss_type"}) || spec.algorithm.loss_type != "sft") return;
  if (problems.sound({"rollout.n_samples_per_prompt"}) && spec.rollout.n_samples_per_prompt != 1) {
    problems.add_at("rollout.n_samples_per_prompt",
                    "loss_type sft trains on each prompt's one label, so \"rollout.n_samples_per_prompt\" must be 1, "
                    "found " +
                        text(spec.rollout.n_samples_per_prompt));
  }
  if (problems.sound({"algorithm.entropy_coef"}) && spec.algorithm.entropy_coef != 0.0) {
    problems.add_at("algorithm.entropy_coef",
                    "loss_type sft has no entropy bonus; \"algorithm.entropy_coef\" must be 0");
  }
  if (problems.sound({"debug.rollout_only"}) && spec.debug.rollout_only) {
    problems.add_at("debug.rollout_only", "loss_type sft generates nothing, so there is no rollout to do alone");
  }
}

void check_debug(const ExperimentSpec& spec, Problems& problems) {
  const Debug& debug = spec.debug;
  if (!problems.sound({"debug.rollout_only", "debug.train_only", "debug.load_rollout", "algorithm.loss_type"})) return;
  if (debug.rollout_only && debug.train_only) {
    problems.add_at(problems.is_given("debug.train_only") ? "debug.train_only" : "debug.load_rollout",
                    "\"debug.rollout_only\" and \"debug.train_only\" (or \"debug.load_rollout\") are both set; a run "
                    "does one half of the loop alone");
  }
  if (debug.rollout_only && problems.sound({"model.path"}) && !spec.model.path) {
    problems.add_at("debug.rollout_only",
                    "\"debug.rollout_only\" starts no trainer that could push weights, so the model must come from "
                    "\"model.path\"");
  }
  if (debug.train_only && !debug.load_rollout && spec.algorithm.loss_type != "sft") {
    problems.add_at("debug.train_only",
                    "\"debug.train_only\" starts no engine, so there must be rollouts to train on: give "
                    "\"debug.load_rollout\"");
  }
  if (debug.load_rollout && debug.save_rollout && problems.sound({"debug.save_rollout"})) {
    problems.add_at("debug.save_rollout", "\"debug.save_rollout\" has nothing to keep: rollouts are loaded, not made");
  }
  std::error_code ignored;
  if (debug.load_rollout && !fs::is_directory(*debug.load_rollout, ignored)) {
    problems.add_at("debug.load_rollout", "\"debug.load_rollout\": there is no folder " + quoted(*debug.load_rollout));
  }
}

void check_checkpoints(const ExperimentSpec& spec, Problems& problems) {
  const Checkpoint& checkpoint = spec.checkpoint;
  if (!problems.sound({"checkpoint.keep_every", "checkpoint.save_interval"}) || !checkpoint.keep_every) return;
  if (checkpoint.save_interval && *checkpoint.keep_every % *checkpoint.save_interval == 0) return;
  problems.add_at("checkpoint.keep_every",
                  "\"checkpoint.keep_every\" is " + text(*checkpoint.keep_every) + ", which must be a multiple of " +
                      (checkpoint.save_interval ? "save_interval " + text(*checkpoint.save_interval)
                                                : "\"checkpoint.save_interval\", which is not given"));
}

}  // namespace

void derive_training(ExperimentSpec& spec, const Problems& problems) {
  Trainer& trainer = spec.trainer;
  if (!problems.is_given("trainer.lr_decay_iters")) {
    trainer.lr_decay_iters =
        std::max<int64_t>(1, spec.rollout.num_rollout * std::max<int64_t>(1, trainer.num_steps_per_rollout));
  }
  if (trainer.lr_warmup_fraction && !problems.is_given("trainer.lr_warmup_iters")) {
    trainer.lr_warmup_iters = warmup_of(trainer);
  }
  std::error_code ignored;
  if (fs::is_directory(spec.model.tokenizer, ignored)) {
    spec.model.tokenizer = fs::canonical(spec.model.tokenizer).string();
  }
  for (std::optional<std::string>* path : {&spec.model.path, &spec.model.ref_load, &spec.debug.save_rollout,
                                           &spec.debug.load_rollout, &spec.weight_sync.disk_dir}) {
    make_absolute(*path);
  }
  if (spec.debug.load_rollout) spec.debug.train_only = true;
}

void check_training(const ExperimentSpec& spec, Problems& problems) {
  check_checkpoints(spec, problems);
  check_schedule(spec, problems);
  check_optimizer(spec, problems);
  check_reference(spec, problems);
  check_groups(spec, problems);
  check_supervised(spec, problems);
  check_debug(spec, problems);
}

}  // namespace vime::spec
