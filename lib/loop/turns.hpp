// Trainer ranks and engines that share GPUs take turns: what one side does not need while the other works leaves the
// GPU. Without sharing every call does nothing. One thread; each call waits for all processes that it speaks to.
//
//   for_training    engines sleep (weights dropped: the next push brings new ones), trainers have all their state
//   for_push        both sides hold weights; engines that have slept hold no KV cache yet
//   for_generation  trainers hold weights only, engines everything
#pragma once

#include "fleet/fleet.hpp"
#include "loop/trainer_group.hpp"
#include "spec/spec.hpp"

namespace vime::loop {

class Turns {
 public:
  Turns(const spec::Offload& offload, fleet::Fleet& fleet, TrainerGroup& trainers)
      : offload_(offload), fleet_(fleet), trainers_(trainers) {}

  void for_training();
  void for_saving();  // as for_training, but engines that do not answer are no reason not to save
  void for_push();
  void for_generation();
  // Wall time that turns have taken since this was asked last.
  double take_seconds();

 private:
  enum class Engines { awake, weights_only, asleep };
  void put_engines_to_sleep();
  void bring_trainers(bool on_gpu);

  spec::Offload offload_;
  fleet::Fleet& fleet_;
  TrainerGroup& trainers_;
  Engines engines_ = Engines::awake;
  bool trainers_on_gpu_ = true;
  double seconds_ = 0.0;
};

}  // namespace vime::loop
