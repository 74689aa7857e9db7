// The processes of a run as the driver sees them: starts them through the node agent, waits until they serve, and turns
// the first unexpected death into an error that names the role, the exit or signal, and the end of its log. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "proc/agent.hpp"

namespace vime::fleet {

class Supervisor {
 public:
  // `on_event` hears of every start, readiness and exit (for the event log); may be empty.
  Supervisor(const std::string& vime_binary, const std::string& run_id,
             std::function<void(const std::string& kind, const Json& fields)> on_event,
             const proc::AgentOptions& agent_options = {});

  // `on_end`: for a process whose end is no end of the run, such as a reward worker that will be started again. It is
  // told the exit or the failed start, from within check() and the waits, instead of an error being thrown.
  void start(const proc::Command& command, std::function<void(const proc::Event&)> on_end = {});
  // TERM to its process group, KILL to its whole tree after the grace; the end comes as an event.
  void stop(const std::string& role, milliseconds grace);
  // Waits until every role has announced that it serves; returns what each announced. Error{process_failed} names the
  // roles that have not by the deadline, or the first that died; Error{interrupted} when the user asked to stop.
  std::map<std::string, Json> wait_ready(const std::vector<std::string>& roles, Deadline deadline);
  // Hears what has happened since; throws for an unexpected death, for a lost agent, and (when `heed_interrupts`) for
  // the user's Ctrl-C.
  void check();
  // Repeats check() every few milliseconds until `done`. waited_for: named by the error at the deadline.
  void wait_until(const std::function<bool()>& done, Deadline deadline, const std::string& waited_for);
  // Throws `error`, or rather the death that explains it: a request to a process that has just died fails before the
  // death is heard of.
  [[noreturn]] void explain(const Error& error);
  // Returns what held before.
  bool heed_interrupts(bool on) { return std::exchange(heed_interrupts_, on); }
  // Ends everything. After this check() is not called again.
  void shutdown(milliseconds grace);
  int agent_pid() const { return agent_.pid(); }

 private:
  void take(const proc::Event& event);
  bool tell_end(const proc::Event& event);
  void take_all();

  proc::Agent agent_;
  std::function<void(const std::string&, const Json&)> on_event_;
  std::map<std::string, Json> ready_;
  std::map<std::string, std::function<void(const proc::Event&)>> on_end_;  // by role
  bool heed_interrupts_ = true;
};

// The sentence of an unexpected death, the last lines of its log, and where the log is.
std::string death_report(const proc::Event& event);

}  // namespace vime::fleet
