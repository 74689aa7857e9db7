#include "sweep/plan.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "spec/load.hpp"
#include "spec/print.hpp"
#include "sweep/base_spec.hpp"
#include "sweep/samples.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

SweepRequest request(const std::vector<std::string>& overrides = {}) {
  SweepRequest made;
  made.base = base_spec("", overrides);
  return made;
}

std::string refusal(const SweepRequest& asked) {
  try {
    plan_sweep(asked, "");
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every leg's spec reads back to itself, so that trainer ranks see what was meant") {
  TempDir samples;
  const SweepPlan plan = plan_sweep(request(), "run");
  for (const Leg& leg : plan.legs) {
    const loop::Prepared prepared = prepare_leg(plan, leg, true, samples.path().string());
    CAPTURE(leg_name(leg));
    CHECK(spec::parse(spec::to_yaml(prepared.spec), "leg") == prepared.spec);
  }
}

TEST_CASE("a leg has its layout, its loss, engines of two devices, and an optimizer that rounding noise cannot move") {
  TempDir samples;
  const SweepPlan plan = plan_sweep(request(), "run");
  const loop::Prepared sgd = prepare_leg(plan, {8, 2, 2, 1, 2, Loss::sample_mean}, true, samples.path().string());
  CHECK(sgd.plan.ranks.size() == 8);
  CHECK(sgd.plan.layout.tp == 2);
  CHECK(sgd.plan.layout.pp == 2);
  CHECK(sgd.plan.layout.dp == 2);
  CHECK(sgd.plan.engines.size() == 4);
  CHECK(sgd.plan.slots.size() == 4);
  CHECK(sgd.parts.pushes());
  CHECK(sgd.max_model_len > kMaxSequenceLen);
  CHECK(sgd.spec.trainer.optimizer == "sgd");
  CHECK_FALSE(sgd.spec.algorithm.calculate_per_token_loss);
  CHECK(sgd.spec.rollout.rollout_temperature == 1.0);
  CHECK(sgd.spec.trainer.global_batch_size == 16);
  CHECK(sgd.run_id == "run");
  const loop::Prepared adam = prepare_leg(plan, {2, 1, 1, 1, 2, Loss::token_mean}, true, samples.path().string());
  CHECK(adam.spec.trainer.optimizer == "adam");
  CHECK(adam.spec.trainer.adam_eps == 1e-2);
  CHECK(adam.spec.algorithm.calculate_per_token_loss);
  CHECK(adam.plan.engines.size() == 1);
}

TEST_CASE("a baseline is one process without engines, on the same samples") {
  TempDir samples;
  const SweepPlan plan = plan_sweep(request(), "run");
  const loop::Prepared one = prepare_leg(plan, baseline_leg(Loss::token_mean), false, samples.path().string());
  CHECK(one.plan.ranks.size() == 1);
  CHECK_FALSE(one.parts.engines);
  CHECK(one.spec.trainer.global_batch_size == 16);
  CHECK(losses_of(plan.legs) == std::vector<Loss>{Loss::sample_mean, Loss::token_mean});
  CHECK(spec::parse(spec::to_yaml(one.spec), "leg") == one.spec);
}

TEST_CASE("the built-in model has an odd vocabulary, tied embeddings and fewer kv heads than the widest TP") {
  const arch::ModelConfig config = plan_sweep(request(), "run").prepared.config;
  CHECK(config.vocab_size == 61);
  CHECK(config.tie_word_embeddings);
  CHECK(config.qk_norm);
  CHECK(config.num_key_value_heads == 4);
  CHECK(config.num_hidden_layers == 5);
}

TEST_CASE("model, algorithm and trainer settings are the user's; layout, placement and optimizer are not") {
  TempDir samples;
  const SweepPlan plan = plan_sweep(
      request({"algorithm.advantage_estimator=gspo", "algorithm.entropy_coef=0.5", "trainer.max_tokens_per_gpu=200",
               "trainer.clip_grad=3.0", "trainer.lr=7.0", "rollout.rollout_temperature=0.9", "seed=5"}),
      "run");
  const spec::ExperimentSpec spec =
      prepare_leg(plan, {2, 1, 2, 1, 1, Loss::sample_mean}, true, samples.path().string()).spec;
  CHECK(spec.algorithm.advantage_estimator == "gspo");
  CHECK(spec.algorithm.entropy_coef == 0.5);
  CHECK(spec.trainer.max_tokens_per_gpu == 200);
  CHECK(spec.trainer.clip_grad == 3.0);
  CHECK(spec.seed == 5);
  CHECK(spec.trainer.lr == 0.5);
  CHECK(spec.rollout.rollout_temperature == 1.0);
}

TEST_CASE("a shipped config can be swept") {
  SweepRequest asked;
  asked.base = base_spec(VIME_SOURCE_DIR "/configs/quickstart.yaml", {});
  asked.sizes.tp = {1, 2, 4};
  asked.sizes.pp = {1, 2};
  CHECK(refusal(asked) == "");
}

TEST_CASE("what no leg or some legs cannot work with is refused before anything is started") {
  CHECK(contains(refusal(request({"algorithm.loss_type=sft", "rollout.n_samples_per_prompt=1",
                                  "algorithm.entropy_coef=0", "rollout.rollout_batch_size=16"})),
                 "loss_type is sft"));
  SweepRequest engines = request();
  engines.gpus_per_engine = 4;
  CHECK(contains(refusal(engines), "8 of 66 legs cannot be run; the first is tp 1 pp 1 cp 1 dp 2 (2 devices, "));
  CHECK(contains(refusal(engines), "rollout_num_gpus = 2"));
  CHECK_THROWS_AS(base_spec("", {"trainer.lrr=1"}), Error);
  CHECK_THROWS_AS(base_spec("/nowhere.yaml", {}), Error);
}
