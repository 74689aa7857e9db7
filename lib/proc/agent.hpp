// The node agent: a process of its own (`vime agent`), a child subreaper, that starts, watches and ends every process of a run
// on its node. It speaks JSON lines over one stream (a socketpair here, any byte stream elsewhere). When the stream closes,
// however that came about, it ends everything it started, grandchildren included, and exits.
//
//   driver -> agent   {"op":"start","role","argv":[..],"env":{..},"log","cwd"}   {"op":"stop","role","grace_ms"}
//                     {"op":"shutdown","grace_ms"}
//   agent -> driver   {"event":"started","role","pid"}   {"event":"ready","role","info":{..}}
//                     {"event":"exited","role","pid","code"|"signal","log","tail":[..]}   {"event":"failed","role","error"}
//                     {"event":"bye"}
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::proc {

struct Command {
  std::string role;               // unique among the living: "trainer-0", "engine-1"
  std::vector<std::string> argv;  // argv[0] is a path or is looked up in PATH; never a shell
  std::map<std::string, std::string> env;  // added to the agent's environment
  std::string log_path;           // stdout and stderr go here (appended)
  std::string cwd;                // "" = the agent's
};

struct Event {
  enum class Kind { started, ready, exited, failed, agent_lost };
  Kind kind = Kind::started;
  std::string role;
  int pid = 0;
  Json info;                           // ready: what the child announced
  std::optional<int> code;             // exited: exit status, or ...
  std::optional<int> signal;           // ... the signal that ended it
  std::string log_path;                // exited
  std::vector<std::string> log_tail;   // exited: the log's last 20 lines
  std::string error;                   // failed: why it could not be started ("exec \"x\": No such file or directory")
  bool expected = false;               // exited: after stop() or shutdown()
};

// "exited with status 3", "was killed by signal 9 (SIGKILL)"
std::string describe_exit(const Event& event);

// The driver's end. One thread at a time.
class Agent {
 public:
  // Starts `<vime_binary> agent --fd N` in its own session, so that a terminal's Ctrl-C does not reach it.
  Agent(const std::string& vime_binary, const std::string& run_id);
  ~Agent();  // shutdown(5 s); nothing that the agent started is alive afterwards
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void start(const Command& command);
  void stop(const std::string& role, std::chrono::milliseconds grace);
  // The next event, or nothing when none came in time. agent_lost is repeated for ever once it happened.
  std::optional<Event> next_event(std::chrono::milliseconds timeout);
  // TERM to all, KILL after the grace, and waits until the agent itself has gone. Idempotent.
  void shutdown(std::chrono::milliseconds grace);
  int pid() const;
  int event_fd() const;  // readable when next_event has something; for poll

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The agent's main: serves the stream on `fd` until it closes. Returns the exit status.
int agent_main(int fd, const std::string& run_id);

// Called by a child to tell the driver that it serves ({"port": 4711, ...}); does nothing when no agent started it.
void announce_ready(const Json& info);

}  // namespace vime::proc
