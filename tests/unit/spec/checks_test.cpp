#include "base/files.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

TEST_CASE("derived values follow the given ones") {
  const ExperimentSpec spec = sound_with({});
  CHECK(spec.placement.device == "cpu");
  CHECK(spec.placement.nodes == std::vector<int64_t>{2});
  CHECK(spec.placement.rollout_num_gpus == 2);
  CHECK(spec.trainer.dtype == "float32");
  CHECK(spec.trainer.global_batch_size == 8);
  CHECK(spec.trainer.num_steps_per_rollout == 1);
  CHECK(spec.algorithm.eps_clip_high == 0.2);
  CHECK(spec.algorithm.grpo_std_normalization);
  CHECK(spec.eval.max_response_len == 4);
  CHECK(sound_with({"algorithm.eps_clip=0.3"}).algorithm.eps_clip_high == 0.3);
  CHECK(sound_with({"algorithm.eps_clip_high=0.4"}).algorithm.eps_clip_high == 0.4);
  CHECK_FALSE(sound_with({"rollout.n_samples_per_prompt=1", "algorithm.rewards_normalization=false"})
                  .algorithm.grpo_std_normalization);
  CHECK(sound_with({"eval.max_response_len=6"}).eval.max_response_len == 6);
}

TEST_CASE("without an inventory there are as many virtual devices as the job needs") {
  CHECK(sound_with({"placement.rollout_num_gpus=5"}).placement.nodes == std::vector<int64_t>{5});
  CHECK(sound_with({"placement.colocate=false", "placement.rollout_num_gpus=3"}).placement.nodes ==
        std::vector<int64_t>{5});
  CHECK(sound_with({"placement.actor_num_nodes=2", "rollout.rollout_batch_size=8", "placement.rollout_num_gpus=6"})
            .placement.nodes == std::vector<int64_t>{2, 2, 2});
}

TEST_CASE("the samples of a rollout are cut evenly, and the steps and the batch determine each other") {
  CHECK(sound_with({"trainer.num_steps_per_rollout=2"}).trainer.global_batch_size == 4);
  CHECK(sound_with({"trainer.global_batch_size=4"}).trainer.num_steps_per_rollout == 2);
  CHECK(sound_with({"trainer.global_batch_size=4", "trainer.num_steps_per_rollout=2"}).trainer.global_batch_size == 4);
  CHECK(contains(refusal_with({"trainer.global_batch_size=4", "trainer.num_steps_per_rollout=4"}),
                 "num_steps_per_rollout 4 x global_batch_size 4 is not the 8 samples of a rollout"));
  CHECK(
      contains(refusal_with({"trainer.global_batch_size=5"}),
               "the 8 samples of a rollout (rollout_batch_size 4 x n_samples_per_prompt 2) cannot be cut into steps of "
               "global_batch_size 5; nearest valid: global_batch_size 4 or 8"));
  CHECK(contains(refusal_with({"trainer.global_batch_size=16"}), "nearest valid: global_batch_size 8"));
}

TEST_CASE("batch 256 over 7 ranks is refused with two rollouts that work") {
  const std::vector<std::string> seven{"placement.actor_num_gpus_per_node=7", "placement.rollout_num_gpus=7",
                                       "rollout.rollout_batch_size=32", "rollout.n_samples_per_prompt=8"};
  auto with = [&seven](std::vector<std::string> more) {
    more.insert(more.begin(), seven.begin(), seven.end());
    return more;
  };
  CHECK(contains(
      refusal_with(with({"trainer.global_batch_size=256"})),
      "a step of 256 samples (global_batch_size) cannot be shared equally by 7 data-parallel ranks; nearest valid: "
      "rollout_batch_size 28 with global_batch_size 224, or rollout_batch_size 35 with global_batch_size 280"));
  // What is offered is accepted.
  CHECK(refusal_with(with({"rollout.rollout_batch_size=28", "trainer.global_batch_size=224"})).empty());
  CHECK(refusal_with(with({"rollout.rollout_batch_size=35", "trainer.global_batch_size=280"})).empty());
}

TEST_CASE("10 prompts x 3 samples in 4 steps are refused with two step counts that work") {
  const std::vector<std::string> base{"placement.actor_num_gpus_per_node=1", "rollout.rollout_batch_size=10",
                                      "rollout.n_samples_per_prompt=3"};
  for (const auto& [steps, sound] : {std::pair{4, false}, {3, true}, {5, true}}) {
    std::vector<std::string> overrides = base;
    overrides.push_back("trainer.num_steps_per_rollout=" + std::to_string(steps));
    const std::string message = refusal_with(overrides);
    CHECK(message.empty() == sound);
    if (!sound)
      CHECK(contains(message, "cannot be cut into 4 equal steps; nearest valid: num_steps_per_rollout 3 or 5"));
  }
}

TEST_CASE("every offered cure of a refused batch is accepted") {
  // All small shapes: whatever "nearest valid" names must pass when it is tried.
  int tried = 0;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int prompts = 1; prompts <= 5; ++prompts) {
      for (int global = 1; global <= 12; ++global) {
        const std::vector<std::string> shape{"placement.actor_num_gpus_per_node=" + std::to_string(ranks),
                                             "rollout.rollout_batch_size=" + std::to_string(prompts),
                                             "rollout.n_samples_per_prompt=2"};
        std::vector<std::string> asked = shape;
        asked.push_back("trainer.global_batch_size=" + std::to_string(global));
        const std::string message = refusal_with(asked);
        CHECK(message.empty() == (prompts * 2 % global == 0 && global % ranks == 0));
        if (message.empty()) continue;
        const size_t size_at = message.find("nearest valid: global_batch_size ");
        const size_t prompts_at = message.find("nearest valid: rollout_batch_size ");
        REQUIRE((size_at == std::string::npos) != (prompts_at == std::string::npos));
        std::vector<std::string> cured = shape;
        if (size_at != std::string::npos) {
          cured.push_back("trainer.global_batch_size=" + std::to_string(std::stoi(message.substr(size_at + 33))));
        } else {
          cured.push_back("rollout.rollout_batch_size=" + std::to_string(std::stoi(message.substr(prompts_at + 34))));
          const size_t with = message.find("with global_batch_size ");
          cured.push_back("trainer.global_batch_size=" + std::to_string(std::stoi(message.substr(with + 23))));
        }
        CAPTURE(message);
        CHECK(refusal_with(cured).empty());
        ++tried;
      }
    }
  }
  CHECK(tried > 100);
}

TEST_CASE("too few devices are refused at the key that asks for them") {
  CHECK(contains(
      refusal_with({"placement.nodes=[4]", "placement.actor_num_gpus_per_node=5", "rollout.rollout_batch_size=5"}),
      "--set placement.actor_num_gpus_per_node=5: the trainer needs 1 x 5 = 5 devices"));
  CHECK(contains(refusal_with({"placement.rollout_num_gpus=0"}), "must be an integer from 1 to 100000, found 0"));
  CHECK(contains(refusal_with({"placement.actor_num_nodes=-1"}), "must be an integer from 1 to 100000, found -1"));
  CHECK(contains(refusal_with({"placement.actor_num_nodes=100000", "placement.actor_num_gpus_per_node=100000"}),
                 "at most 100000 can be placed"));
  CHECK(contains(refusal_with({"placement.nodes=[]"}), "nodes lists no node"));
  CHECK(contains(refusal_with({"placement.colocate=false"}), "\"placement.rollout_num_gpus\" is missing"));
  CHECK(contains(refusal_with({"placement.nodes=[8, 8]", "placement.rollout_num_gpus=12",
                               "placement.rollout_num_gpus_per_engine=12"}),
                 "does not fit on one node: the largest has 8"));
}

TEST_CASE("shared memory reaches colocated engines only") {
  CHECK(refusal_with({"weight_sync.transport=shm"}).empty());
  CHECK(refusal_with({"weight_sync.transport=tcp"}).empty());
  CHECK(
      contains(refusal_with({"weight_sync.transport=shm", "placement.colocate=false", "placement.rollout_num_gpus=2"}),
               "transport shm reaches colocated engines only, but 2 of 2 engines"));
  CHECK(contains(refusal_with({"weight_sync.transport=shm", "placement.rollout_num_gpus=3"}), "but 1 of 3 engines"));
}

TEST_CASE("sampling that the trainer cannot follow is refused with the reason") {
  const std::string reason = "the trainer's log-probs are over the full vocabulary";
  CHECK(contains(refusal_with({"rollout.rollout_top_p=0.9"}), reason));
  CHECK(contains(refusal_with({"rollout.rollout_top_k=20"}), reason));
  CHECK(refusal_with({"rollout.rollout_top_p=1.0", "rollout.rollout_top_k=-1"}).empty());
  CHECK(refusal_with({"engine.logprobs_mode=raw_logprobs"}).empty());
  CHECK(contains(refusal_with({"engine.logprobs_mode=raw_logprobs", "rollout.rollout_temperature=0.7"}),
                 "taken before the temperature"));
}

TEST_CASE("lengths fit the engine, the micro-batch and the model") {
  CHECK(refusal_with({"engine.max_model_len=5"}).empty());
  CHECK(contains(refusal_with({"engine.max_model_len=4"}),
                 "\"engine.max_model_len\" is 4, but a sample can have 5 tokens"));
  CHECK(contains(refusal_with({"engine.max_model_len=16", "rollout.rollout_max_prompt_len=13"}), "can have 17 tokens"));
  CHECK(contains(refusal_with({"engine.max_model_len=16", "eval.eval_interval=1",
                               "eval.prompt_data=builtin:sort_digits", "eval.max_response_len=16"}),
                 "max_response_len 16 of the evaluation \"sort_digits\""));
  CHECK(contains(refusal_with({"trainer.max_tokens_per_gpu=4"}), "\"trainer.max_tokens_per_gpu\" is 4"));
  CHECK(contains(refusal_with({"engine.max_model_len=100000"}), "but the model takes at most"));
  CHECK(contains(refusal_with({"rollout.rollout_max_response_len=100000", "trainer.max_tokens_per_gpu=200000"}),
                 "but the model takes at most"));
}

TEST_CASE("evaluation needs data, and the KL one place") {
  CHECK(contains(refusal_with({"eval.eval_interval=5"}), "but neither eval.prompt_data nor eval.datasets"));
  CHECK(refusal_with({"eval.eval_interval=5", "eval.prompt_data=builtin:sort_digits/heldout"}).empty());
  CHECK(contains(refusal_with({"algorithm.kl_coef=0.1"}),
                 "must be 0, found 0.1: the KL goes into the loss in this version"));
  CHECK(refusal_with({"algorithm.kl_coef=0.0", "algorithm.kl_loss_coef=0"}).empty());
}

TEST_CASE("a run has exactly one model, which exists and which the engine can cut") {
  CHECK(contains(refusal_with({"model.path=/nowhere"}), "are both given"));
  CHECK(contains(refusal_with({"model.preset=null"}),
                 "s.yaml:1:1: \"model.path\" (a folder) or \"model.preset\" (a name) is missing"));
  CHECK(contains(refusal_with({"model.preset=huge"}), "tiny"));
  CHECK(contains(refusal_with({"model.preset=null", "model.path=/nowhere"}), "there is no folder \"/nowhere\""));
  const vime::TempDir folder;
  const std::string path = "model.path=" + folder.path().string();
  CHECK(contains(refusal_with({"model.preset=null", path}), "has no config.json"));
  vime::write_file_atomic(folder.path() / "config.json", "{");
  CHECK(contains(refusal_with({"model.preset=null", path}), "--set " + path));
  CHECK(contains(refusal_with({"placement.actor_num_gpus_per_node=3", "rollout.rollout_batch_size=3",
                               "placement.rollout_num_gpus_per_engine=3"}),
                 "an engine of 3 devices cannot hold the model"));
}

TEST_CASE("a check whose keys are wrong already keeps quiet") {
  const std::string message = refusal_with({"rollout.rollout_batch_size=many", "trainer.global_batch_size=7"});
  CHECK(message ==
        "--set rollout.rollout_batch_size=many: \"rollout.rollout_batch_size\" must be an integer from 1 to 1000000, "
        "found \"many\"");
}
