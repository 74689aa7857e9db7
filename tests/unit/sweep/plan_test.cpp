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
  made.overrides = overrides;
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
  TempDir folder;
  SweepRequest asked;
  asked.config = (folder.path() / "mine.yaml").string();
  write_file_atomic(asked.config, spec::to_yaml(base_spec("", {"trainer.lr=7.0", "rollout.rollout_temperature=0.9"})));
  asked.overrides = {"algorithm.advantage_estimator=gspo",
                     "algorithm.entropy_coef=0.5",
                     "trainer.max_tokens_per_gpu=200",
                     "trainer.clip_grad=3.0",
                     "trainer.adam_beta1=0.8",
                     "weight_sync.timeout=20s",
                     "seed=5"};
  const SweepPlan plan = plan_sweep(asked, "run");
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

TEST_CASE("of a shipped config's model every size is swept that it can be cut into, and the others are named") {
  SweepRequest asked;
  asked.config = VIME_SOURCE_DIR "/configs/quickstart.yaml";
  const SweepPlan plan = plan_sweep(asked, "");
  CHECK(plan.config == asked.config);
  CHECK(plan.left_out == std::vector<std::string>{"PP 4 (2 layers)"});
  for (const Leg& leg : plan.legs) CHECK(leg.pp <= 2);
  CHECK(plan_sweep(request(), "").left_out.empty());
  asked.sizes.num_gpus = {16};
  asked.sizes.tp = {1, 16};
  CHECK(plan_sweep(asked, "").left_out == std::vector<std::string>{"TP 16 (8 attention heads)", "PP 4 (2 layers)"});
  asked.sizes.num_gpus = {2};  // neither would have had a leg
  CHECK(plan_sweep(asked, "").left_out.empty());
}

TEST_CASE("sizes that were asked for are refused where the model cannot be cut so, with those that it can") {
  SweepRequest asked;
  asked.config = VIME_SOURCE_DIR "/configs/quickstart.yaml";
  asked.pp_given = true;
  CHECK(refusal(asked) ==
        "--pp 4: 2 layers cannot be cut into 4 pipeline stages (use a pipeline-parallel size of at most 2)");
  asked.pp_given = false;
  asked.tp_given = true;
  asked.sizes.num_gpus = {16};
  asked.sizes.tp = {1, 16};
  const std::string fault = "8 attention heads cannot be cut over 16 tensor-parallel ranks";
  CHECK(refusal(asked) == "--tp 16: " + fault + " (use a tensor-parallel size of 1, 2, 4, 8)");
  asked.sizes.tp = {1};
  asked.gpus_per_engine = 16;
  CHECK(contains(refusal(asked), "--rollout-num-gpus-per-engine 16: " + fault));
}

TEST_CASE("a key that the sweep sets itself is refused by name, whatever value it is given") {
  for (const char* key :
       {"trainer.lr=7.0", "trainer.lr=0.5", "trainer.adam_eps=1e-8", "trainer.tensor_model_parallel_size=1",
        "rollout.rollout_temperature=1.0", "algorithm.calculate_per_token_loss=true", "placement.colocate=true",
        "trainer.global_batch_size=16", "checkpoint.save_interval=1", "name=mine", "ci_test=true"}) {
    CAPTURE(key);
    const std::string name = std::string(key).substr(0, std::string(key).find('='));
    CHECK(contains(refusal(request({"seed=3", key})), "--set " + name + ": the sweep sets this key itself"));
  }
  CHECK(contains(refusal(request({"trainer.lr=1", "seed=3", "trainer.optimizer=sgd", "trainer.lr=2"})),
                 "--set trainer.lr, trainer.optimizer: the sweep sets these keys itself"));
  CHECK(contains(refusal(request({"trainer={lr: 1, clip_grad: 2}"})), "--set trainer.lr: the sweep sets"));
  // Only legs with the per-token mean have moments.
  SweepRequest moments = request({"trainer.adam_beta1=0.8"});
  CHECK(refusal(moments) == "");
  moments.only.loss = Loss::sample_mean;
  CHECK(contains(refusal(moments), "trainer.adam_beta1"));
}

TEST_CASE("plan and sweep agree on the engines of one device") {
  TempDir samples;
  SweepRequest asked = request();
  asked.sizes.num_gpus = {1};
  const SweepPlan plan = plan_sweep(asked, "run");
  REQUIRE(plan.legs.size() == 2);
  CHECK(engine_devices(plan.legs[0], plan.settings.gpus_per_engine) == 1);
  const loop::Prepared prepared = prepare_leg(plan, plan.legs[0], true, samples.path().string());
  REQUIRE(prepared.plan.engines.size() == 1);
  CHECK(prepared.plan.engines[0].count == 1);
}

TEST_CASE("devices that engines cannot share evenly are refused, with the cure in the sweep's options") {
  SweepRequest asked = request();
  asked.sizes.num_gpus = {3};
  CHECK(refusal(asked) ==
        "3 devices cannot be shared by engines of 2 (use --rollout-num-gpus-per-engine 1 or other --num-gpus)");
  asked.sizes.num_gpus = {8, 3, 1, 5};
  CHECK(contains(refusal(asked), "3 and 5 devices cannot be shared by engines of 2"));
  asked.gpus_per_engine = 1;
  CHECK(refusal(asked) == "");
}

TEST_CASE("what no leg or some legs cannot work with is refused before anything is started") {
  const std::string sft = refusal(request({"algorithm.loss_type=sft", "rollout.n_samples_per_prompt=1",
                                           "algorithm.entropy_coef=0", "rollout.rollout_batch_size=16"}));
  CHECK(contains(sft, "loss_type is sft"));
  CHECK(contains(sft, "give a CONFIG with loss_type policy_loss"));
  // Without a place in the text of a leg's spec, which nobody sees.
  SweepRequest tokens = request({"trainer.max_tokens_per_gpu=50"});
  tokens.config = VIME_SOURCE_DIR "/configs/quickstart.yaml";
  CHECK(contains(refusal(tokens),
                 "30 of 58 legs cannot be run; the first is tp 1 pp 1 cp 1 dp 8 (8 devices, sample "
                 "mean): \"trainer.max_tokens_per_gpu\" is 50, but"));
  CHECK_THROWS_AS(base_spec("", {"trainer.lrr=1"}), Error);
  CHECK_THROWS_AS(base_spec("/nowhere.yaml", {}), Error);
}

namespace {

SweepRequest on_gpus(int gpus, int devices_per_gpu) {
  SweepRequest asked = request();
  asked.device = "cuda";
  asked.devices_per_gpu = devices_per_gpu;
  asked.find_gpus = [gpus] {
    devices::Inventory machine;
    for (int i = 0; i < gpus; ++i)
      machine.gpus.push_back({i, std::to_string(i) + "-gpu", "a GPU", uint64_t{141} << 30, 9, 0});
    return machine;
  };
  return asked;
}

}  // namespace

TEST_CASE("one GPU that eight devices share has all legs, and every leg's spec reads back to itself") {
  const SweepRequest asked = on_gpus(1, 8);
  const SweepPlan plan = plan_sweep(asked, "run");
  CHECK(plan.legs.size() == plan_sweep(on_gpus(8, 1), "run").legs.size());
  CHECK(plan.legs.size() == 66);
  CHECK(plan.left_out.empty());
  CHECK(plan.jobs == 1);
  TempDir samples;
  for (const Leg& leg : plan.legs) {
    const loop::Prepared prepared = prepare_leg(plan, leg, true, samples.path().string());
    CAPTURE(leg_name(leg));
    CHECK(prepared.plan.devices.back().uuid == "0-gpu/" + std::to_string(leg.num_gpus - 1) + "of8");
    CHECK(spec::parse(spec::to_yaml(prepared.spec), "leg", {}, asked.find_gpus) == prepared.spec);
  }
}

TEST_CASE("too few GPUs for the numbers that are asked for are refused, with the shares that would do") {
  SweepRequest asked = on_gpus(2, 1);
  asked.sizes.num_gpus = {8};
  asked.num_gpus_given = true;
  CHECK(contains(refusal(asked), "--num-gpus 8: this machine has 2 GPUs"));
  CHECK(contains(refusal(asked), "with --devices-per-gpu 4 they share GPUs"));
  asked.devices_per_gpu = 2;
  CHECK(contains(refusal(asked), "--num-gpus 8: this machine has 2 GPUs for 4 devices"));
  asked.devices_per_gpu = 4;
  CHECK(refusal(asked) == "");
  SweepRequest few = on_gpus(1, 2);
  const SweepPlan plan = plan_sweep(few, "run");
  CHECK(plan.left_out == std::vector<std::string>{"8 devices (there are 2)", "4 devices (there are 2)"});
  few.device = "cpu";
  CHECK(contains(refusal(few), "--devices-per-gpu 2: --device is cpu, where every device is virtual"));
}
