// One child of the agent and the tree of processes that grew from it. For the agent's only thread; nothing blocks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/files.hpp"
#include "proc/agent.hpp"
#include "proc/process_table.hpp"

namespace vime::proc {

struct Child {
  // running -> ending (TERM was sent, the grace runs) -> sweeping (KILL to what is left of the tree, until nothing is).
  // A child that ends by itself goes to sweeping at once.
  enum class Phase { running, ending, sweeping };

  Command command;
  std::string mark;  // "VIME_CHILD=<run id>/<agent pid>/<number>", in the environment of the whole tree
  pid_t pid = 0;
  Phase phase = Phase::running;
  bool reaped = false;
  bool expected = false;
  std::optional<int> code, signal;
  std::string failure;             // why it counts as never started
  UniqueFd stdin_end, stdout_end;  // came with the command; closed here once the child has them
  UniqueFd exec_pipe;              // open until exec has succeeded or failed
  UniqueFd ready_pipe;             // open until the child announced itself
  std::string ready_text;
  int64_t log_start = 0;                          // size of the log before this child wrote to it
  SteadyClock::time_point kill_at;                // ending: when the grace is over
  SteadyClock::time_point sweep_start;            // sweeping: since when
  SteadyClock::time_point next_round;             // when the tree is looked at again
  std::vector<std::pair<pid_t, uint64_t>> known;  // pid and start time of members seen so far
};

using Children = std::vector<std::unique_ptr<Child>>;

// Starts child.command, by a mere fork where it is preloaded, and fills in what the running child has. `mark_value` is
// "<run id>/<agent pid>/<number>". Throws Error{process_failed} when nothing was started; a failure of exec comes later
// through exec_pipe.
void launch(Child& child, const std::string& run_id, const std::string& mark_value, const Preloaded& preloaded);

// The living processes that belong to the child, one of `all`. Adds them to child.known.
std::vector<ProcessEntry> tree_of(Child& child, const Children& all);

}  // namespace vime::proc
