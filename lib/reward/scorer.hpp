// What scores outside of this process: the command or the service. Between rewards.cpp and the two; one thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reward/rewards.hpp"

namespace vime::reward {

class Scorer {
 public:
  using Done = std::function<void(std::vector<Score>)>;
  virtual ~Scorer() = default;
  virtual void submit(std::vector<ScoreItem> items, Done done) = 0;
  virtual void poll() = 0;                      // calls `done` of what has come
  virtual void wait(milliseconds timeout) = 0;  // until poll() may have something to do
  virtual void cancel() = 0;                    // every open call ends now, without a number
  virtual void count(RewardCounters& counters) const = 0;
};
std::unique_ptr<Scorer> make_command_scorer(const RewardOptions& options, WorkerLauncher launcher);
std::unique_ptr<Scorer> make_service_scorer(const RewardOptions& options);

}  // namespace vime::reward
