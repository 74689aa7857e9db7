// What the tests of commands share: an agent with a folder of its own and the launcher over it, as the driver has them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/random.hpp"
#include "proc/agent.hpp"
#include "reward/rewards.hpp"

namespace vime::reward::test {

class Bench {
 public:
  Bench(const std::string& bin_dir, const std::string& run_id)
      : run_id_(run_id), agent_(bin_dir + "/proc_test_child", run_id) {}

  WorkerLauncher launcher() {
    return {[this](const proc::Command& command, std::function<void(const proc::Event&)> on_end) {
              agent_.start(command);
              on_end_[command.role] = std::move(on_end);
            },
            [this](const std::string& role, milliseconds grace) { agent_.stop(role, grace); }};
  }
  // Hears what happened to the processes; the `check` of Rewards::finish.
  void check() {
    while (const std::optional<proc::Event> event = agent_.next_event(milliseconds(0))) {
      if (event->kind == proc::Event::Kind::agent_lost) throw Error(ErrorKind::process_failed, event->error);
      if (event->kind != proc::Event::Kind::exited && event->kind != proc::Event::Kind::failed) continue;
      const auto on_end = std::move(on_end_.at(event->role));
      on_end_.erase(event->role);
      on_end(*event);
    }
  }
  RewardOptions options(const std::vector<std::string>& command) const {
    RewardOptions options;
    options.type = "command";
    options.command = command;
    options.num_workers = 2;
    options.timeout = milliseconds(20000);
    options.log_folder = folder_.path().string();
    return options;
  }
  const std::string& run_id() const { return run_id_; }
  const TempDir& folder() const { return folder_; }
  proc::Agent& agent() { return agent_; }
  size_t living() const { return on_end_.size(); }

 private:
  TempDir folder_;
  std::string run_id_;
  proc::Agent agent_;
  std::map<std::string, std::function<void(const proc::Event&)>> on_end_;
};

}  // namespace vime::reward::test
