#include "sweep/leg_spec.hpp"

#include "base/error.hpp"
#include "sweep/samples.hpp"

namespace vime::sweep {
namespace {

constexpr double kEngineShare = 0.5;  // of a GPU, beside a trainer rank that stays there

// An optimizer whose step is a smooth function of the gradient, so that what a leg's order of summation changes in the
// last digits stays in the last digits. Adam's first step with its usual eps is not: it is lr x sign(g), and an element
// whose gradient is nothing but rounding noise moves a full step up or down.
void set_optimizer(spec::Trainer& trainer, Loss loss) {
  trainer.lr_decay_style = "constant";
  trainer.min_lr = 0.0;
  trainer.lr_warmup_iters = 0;
  trainer.lr_warmup_fraction.reset();
  trainer.lr_decay_iters = kSteps;
  if (loss == Loss::sample_mean) {
    const spec::Trainer usual;  // SGD has no moments
    trainer.adam_beta1 = usual.adam_beta1;
    trainer.adam_beta2 = usual.adam_beta2;
    trainer.adam_eps = usual.adam_eps;
    trainer.optimizer = "sgd";
    trainer.lr = 0.5;  // with the norm clipped at 1 the weights move visibly and stay where they make sense
    return;
  }
  // update = lr x m / (sqrt(v) + eps), whose slope in g is at most lr / eps: noise of 1e-7 becomes 1e-5 lr. Elements of
  // a clipped gradient are around 1e-3 to 1e-1, so both moments still take part in the update.
  trainer.optimizer = "adam";
  trainer.adam_eps = 1e-2;
  trainer.lr = 1e-2;
}

void set_placement(spec::ExperimentSpec& spec, const Leg& leg, const LegSettings& settings) {
  spec.placement = {};
  spec.placement.device = settings.device;
  if (settings.device == "cuda") {
    const auto first = settings.device_uuids.begin();
    spec.placement.device_uuids.assign(first, first + leg.num_gpus);
    spec.placement.devices_per_gpu = settings.devices_per_gpu;
  }
  spec.offload = {};  // trainer and engines are compared side by side
  spec.placement.nodes = {leg.num_gpus};
  spec.placement.colocate = true;
  spec.placement.actor_num_gpus_per_node = leg.num_gpus;
  spec.placement.rollout_num_gpus = leg.num_gpus;
  // The baseline has no engines, but a placement needs one that fits.
  spec.placement.rollout_num_gpus_per_engine = engine_devices(leg, settings.gpus_per_engine);
  spec.trainer.tensor_model_parallel_size = leg.tp;
  spec.trainer.pipeline_model_parallel_size = leg.pp;
  spec.trainer.context_parallel_size = leg.cp;
}

// The samples are made up: no prompt is read and no response is scored.
void set_inputs(spec::ExperimentSpec& spec, const std::string& samples_folder) {
  spec.data.apply_chat_template = false;
  if (!spec.data.label_key) spec.data.label_key = spec::Data().label_key;
  spec.reward = {};
  spec.reward.type = "position_match";
  spec.eval = {};
  spec.eval.max_response_len = kMaxResponseLen;  // a default that no resolved spec has
  spec.debug = {};
  spec.debug.load_rollout = samples_folder;
  spec.debug.train_only = true;  // as load_rollout implies; the sweep starts engines all the same
}

}  // namespace

void check_base(const spec::ExperimentSpec& base) {
  if (base.algorithm.loss_type == "sft") {
    throw Error(
        ErrorKind::refused, "algorithm.loss_type is sft: the sweep compares policy losses, on samples with advantages",
        "give a CONFIG with loss_type policy_loss; the sweep makes up prompts and rewards, so the same \"model\" "
        "section is all that it needs to share");
  }
}

spec::ExperimentSpec leg_spec(const spec::ExperimentSpec& base, const Leg& leg, const LegSettings& settings) {
  spec::ExperimentSpec spec = base;
  spec.name = leg_folder(leg);
  spec.ci_test = true;
  set_placement(spec, leg, settings);
  spec.trainer.dtype = settings.dtype;
  spec.trainer.recompute_granularity = settings.recompute_granularity;
  spec.engine.gpu_memory_utilization = settings.device == "cuda" ? kEngineShare : spec::Engine().gpu_memory_utilization;
  set_optimizer(spec.trainer, leg.loss);
  spec.trainer.global_batch_size = settings.samples;
  spec.trainer.num_steps_per_rollout = 1;
  spec.algorithm.calculate_per_token_loss = leg.loss == Loss::token_mean;
  spec.rollout.num_rollout = kSteps;
  spec.rollout.n_samples_per_prompt = kGroupSize;
  spec.rollout.rollout_batch_size = settings.samples / kGroupSize;
  spec.rollout.rollout_max_prompt_len = kMaxPromptLen;
  spec.rollout.rollout_max_response_len = kMaxResponseLen;
  // Engines are asked for the log-probs of given tokens, which know no temperature.
  spec.rollout.rollout_temperature = 1.0;
  spec.engine.max_model_len = kMaxPromptLen + kMaxResponseLen;
  spec.checkpoint = {};
  set_inputs(spec, settings.samples_folder);
  return spec;
}

}  // namespace vime::sweep
