#include "loop/turns.hpp"

#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace vime::loop {
namespace {

// The sleep level of vLLM's routes.
constexpr int kDropWeights = 2;

}  // namespace

void Turns::put_engines_to_sleep() {
  if (!offload_.rollout || engines_ == Engines::asleep) return;
  fleet_.sleep_all(kDropWeights);
  engines_ = Engines::asleep;
}

void Turns::for_training() {
  const auto begin = SteadyClock::now();
  put_engines_to_sleep();
  bring_trainers(true);
  seconds_ += seconds_since(begin);
}

void Turns::for_saving() {
  const auto begin = SteadyClock::now();
  try {
    put_engines_to_sleep();
  } catch (const Error& error) {
    log::warning("loop", error.within("engines stay where they are while a checkpoint is saved").what());
  }
  bring_trainers(true);
  seconds_ += seconds_since(begin);
}

void Turns::for_push() {
  const auto begin = SteadyClock::now();
  if (engines_ == Engines::asleep) {
    fleet_.wake_all({fleet::kWeights});
    engines_ = Engines::weights_only;
  }
  seconds_ += seconds_since(begin);
}

void Turns::for_generation() {
  const auto begin = SteadyClock::now();
  if (offload_.train) bring_trainers(false);
  if (engines_ != Engines::awake) {
    fleet_.wake_all({fleet::kKvCache});
    engines_ = Engines::awake;
  }
  seconds_ += seconds_since(begin);
}

void Turns::bring_trainers(bool on_gpu) {
  if (trainers_on_gpu_ == on_gpu) return;
  trainers_.call_all(on_gpu ? "/onload" : "/offload", Json::object());
  trainers_on_gpu_ = on_gpu;
}

double Turns::take_seconds() {
  return std::exchange(seconds_, 0.0);
}

}  // namespace vime::loop
