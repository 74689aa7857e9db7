#include "sweep/base_spec.hpp"

#include "spec/load.hpp"

namespace vime::sweep {
namespace {

// The tokenizer has 59 characters and two special tokens: a vocabulary of 61 cannot be cut evenly. Nothing is ever
// tokenized or scored; the keys are there because every spec has them. Weight decay is strong enough to show when a
// rank leaves it out.
constexpr const char* kBuiltIn = R"yaml(
name: check-parallel
model: {preset: tiny-parallel, tokenizer: "char:0123456789=abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"}
data: {prompt_data: "builtin:sort_digits"}
reward: {type: position_match}
placement: {device: cpu, colocate: true}
trainer: {max_tokens_per_gpu: 96, clip_grad: 1.0, weight_decay: 0.1, timeout: 120s}
algorithm: {advantage_estimator: grpo, eps_clip: 0.2, kl_loss_coef: 0.1, kl_loss_type: low_var_kl, entropy_coef: 0.01}
rollout: {num_rollout: 2, rollout_batch_size: 4, n_samples_per_prompt: 4, rollout_max_prompt_len: 20, rollout_max_response_len: 59}
weight_sync: {timeout: 60s}
)yaml";

}  // namespace

spec::ExperimentSpec base_spec(const std::string& config, const std::vector<std::string>& overrides) {
  if (!config.empty()) return spec::load(config, overrides);
  return spec::parse(kBuiltIn, "built-in spec", overrides);
}

}  // namespace vime::sweep
