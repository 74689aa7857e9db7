#include "base/files.hpp"
#include "spec_text.hpp"

using namespace vime::spec;
using vime::TempDir;

TEST_CASE("the schedule spans the run's optimizer steps unless it says otherwise") {
  CHECK(sound_with({"rollout.num_rollout=50"}).trainer.lr_decay_iters == 50);
  CHECK(sound_with({"rollout.num_rollout=50", "trainer.num_steps_per_rollout=2"}).trainer.lr_decay_iters == 100);
  CHECK(sound_with({"trainer.lr_decay_iters=7"}).trainer.lr_decay_iters == 7);
  CHECK(sound_with({"rollout.num_rollout=50", "trainer.lr_warmup_fraction=0.1"}).trainer.lr_warmup_iters == 5);
  CHECK(sound_with({"trainer.lr_warmup_iters=3"}).trainer.lr_warmup_iters == 3);
}

TEST_CASE("a schedule that contradicts itself is refused") {
  CHECK(contains(refusal_with({"trainer.lr=1e-3", "trainer.min_lr=1e-2"}),
                 "\"trainer.min_lr\" (0.01) is larger than \"trainer.lr\" (0.001)"));
  CHECK(contains(
      refusal_with({"trainer.lr_decay_style=linear", "trainer.lr_warmup_iters=10", "trainer.lr_decay_iters=10"}),
      "the warm-up of 10 optimizer steps leaves none to decay over: lr_decay_iters is 10"));
  CHECK(refusal_with({"trainer.lr_warmup_iters=10", "trainer.lr_decay_iters=10"}).empty());
  CHECK(
      contains(refusal_with({"trainer.lr=1e-3", "trainer.min_lr=1e-4"}), "has no effect: lr_decay_style is constant"));
  CHECK(contains(refusal_with({"trainer.lr_decay_style=cosin"}), "cosine"));
}

TEST_CASE("a learning rate that ends before the run does is refused") {
  const std::vector<std::string> cosine{"trainer.lr_decay_style=cosine", "rollout.num_rollout=10"};
  CHECK(refusal_with(cosine).empty());
  CHECK(contains(refusal_with({cosine[0], cosine[1], "trainer.lr_decay_iters=8"}),
                 "the learning rate reaches 0 at optimizer step 8 of 10"));
  CHECK(refusal_with({cosine[0], cosine[1], "trainer.lr_decay_iters=8", "trainer.min_lr=1e-7"}).empty());
  CHECK(
      contains(refusal_with({"trainer.lr_warmup_iters=1", "trainer.lr_warmup_fraction=0.5", "rollout.num_rollout=10"}),
               "\"trainer.lr_warmup_iters\" is 1, but lr_warmup_fraction says 5"));
}

TEST_CASE("checkpoints that are kept for good are among those that are written") {
  CHECK(refusal_with({"checkpoint.save_interval=2", "checkpoint.keep_every=6"}).empty());
  CHECK(contains(refusal_with({"checkpoint.save_interval=4", "checkpoint.keep_every=6"}),
                 "must be a multiple of save_interval 4"));
  CHECK(contains(refusal_with({"checkpoint.keep_every=6"}), "which is not given"));
}

TEST_CASE("a group of one sample teaches nothing when rewards are compared within the group") {
  CHECK(contains(refusal_with({"rollout.n_samples_per_prompt=1"}), "a sample alone in its group has advantage 0"));
  CHECK(refusal_with({"rollout.n_samples_per_prompt=1", "algorithm.rewards_normalization=false"}).empty());
}

TEST_CASE("a reference model that nothing would use or that is not there is refused") {
  const TempDir folder;
  CHECK(contains(refusal_with({"model.ref_load=" + folder.path().string(), "algorithm.kl_loss_coef=0.1"}),
                 "with a config.json"));
  vime::write_file_atomic(folder.path() / "config.json", "{}");
  CHECK(refusal_with({"model.ref_load=" + folder.path().string(), "algorithm.kl_loss_coef=0.1"}).empty());
  CHECK(contains(refusal_with({"model.ref_load=" + folder.path().string()}), "it would not be used"));
  CHECK(refusal_with({"algorithm.kl_loss_coef=0.1", "algorithm.kl_loss_type=low_var_kl"}).empty());
}

TEST_CASE("supervised training has one label per prompt, no entropy bonus and no rollout") {
  const std::vector<std::string> sft{"algorithm.loss_type=sft", "rollout.n_samples_per_prompt=1"};
  CHECK(refusal_with(sft).empty());
  CHECK(contains(refusal_with({"algorithm.loss_type=sft"}), "\"rollout.n_samples_per_prompt\" must be 1, found 2"));
  CHECK(contains(refusal_with({sft[0], sft[1], "algorithm.entropy_coef=0.1"}), "has no entropy bonus"));
  CHECK(contains(refusal_with({sft[0], sft[1], "debug.rollout_only=true"}), "generates nothing"));
  CHECK(refusal_with({sft[0], sft[1], "debug.train_only=true"}).empty());
}

TEST_CASE("the debug modes exclude each other and need what they work on") {
  const TempDir folder;
  CHECK(sound_with({"debug.load_rollout=" + folder.path().string()}).debug.train_only);
  CHECK(contains(refusal_with({"debug.load_rollout=" + (folder.path() / "none").string()}), "there is no folder"));
  CHECK(contains(refusal_with({"debug.train_only=true"}), "give \"debug.load_rollout\""));
  CHECK(contains(refusal_with({"debug.rollout_only=true"}), "the model must come from \"model.path\""));
  CHECK(contains(refusal_with({"debug.rollout_only=true", "debug.load_rollout=" + folder.path().string()}),
                 "a run does one half of the loop alone"));
}
