// The processes of a run: trainer ranks, engines and reward workers, under one supervisor. Used by the driver's one
// thread; starting them blocks until all serve, at most engine.startup_timeout.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fleet/fleet.hpp"
#include "loop/prepare.hpp"
#include "loop/run_directory.hpp"
#include "loop/trainer_group.hpp"
#include "reward/rewards.hpp"

namespace vime::loop {

// The running processes. Destroying it ends them all.
class Processes {
 public:
  // Writes the model folder, starts what `prepared.parts` names, waits until it serves and has joined its groups.
  Processes(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
            std::function<void(const std::string&, const Json&)> on_event, const proc::AgentOptions& agent = {});

  fleet::Supervisor& supervisor() { return supervisor_; }
  fleet::Fleet& fleet() { return *fleet_; }         // with no engines where there are none
  TrainerGroup& trainers() { return *trainers_; }   // with no ranks where there are none
  reward::Rewards& rewards() { return *rewards_; }  // only where something is generated
  void shutdown();

 private:
  void start_trainers(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary);
  void start_engines(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary);
  // When they serve and suit the run.
  std::vector<weights::EngineAddress> start_vllm(const Prepared& prepared, const RunDirectory& directory);

  std::string token_;
  http::Client client_;
  fleet::Supervisor supervisor_;
  std::unique_ptr<TrainerGroup> trainers_;
  std::unique_ptr<fleet::Fleet> fleet_;
  std::unique_ptr<reward::Rewards> rewards_;
};

}  // namespace vime::loop
