// The agent's side: children, their trees, and the loop that serves the driver. One thread, on purpose: a parent-death
// signal fires when the *thread* that forked ends, and here that thread is the process. Nothing blocks except the poll
// itself; output to the driver is queued, so that a driver that does not read cannot hold up the ending of processes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/files.hpp"
#include "proc/agent.hpp"
#include "proc/child.hpp"

namespace vime::proc {

class Supervisor {
 public:
  // `stream` and `signals` (a signalfd of CHLD, TERM, INT, HUP) are non-blocking.
  Supervisor(UniqueFd stream, UniqueFd signals, std::string run_id, Preloaded preloaded);
  // Until the driver has gone or asked to shut down and nothing is left. Returns the exit status: 1 when a process
  // would not end.
  int serve();

 private:
  void poll_once();
  void read_stream();
  ssize_t receive(char* buffer, size_t size);
  void read_signals();
  void write_stream();
  void send(const Json& message);
  void take(const std::string& line);

  void start(Command command, std::pair<UniqueFd, UniqueFd> stdio);
  std::pair<UniqueFd, UniqueFd> take_stdio(const Json& message);
  void stop(const std::string& role, milliseconds grace);
  void fail(Child& child, const std::string& why);
  void settle_exec(Child& child);
  void read_ready(Child& child);

  void begin_ending(Child& child, milliseconds grace);
  void begin_sweeping(Child& child);
  void begin_closing(milliseconds grace, const std::string& reason);
  void reap();
  void take_exit(Child& child, const siginfo_t& status);
  void advance_children();
  bool advance(Child& child);  // true once nothing of it is left
  void report_end(const Child& child);
  void sweep_remaining();
  milliseconds time_to_next_step() const;

  UniqueFd stream_, signals_;
  const std::string run_id_;
  const Preloaded preloaded_;
  std::string inbox_, outbox_;
  std::deque<UniqueFd> received_;  // descriptors of start messages that are still in the inbox
  std::vector<std::unique_ptr<Child>> children_;
  int64_t started_ = 0;
  bool closing_ = false;
  bool done_ = false;
  int status_ = 0;
  std::string reason_;
  SteadyClock::time_point give_up_at_, next_sweep_;
};

}  // namespace vime::proc
