// The node agent: a process of its own (`vime agent`), a child subreaper, that starts, watches and ends every process
// of a run on its node. It speaks JSON lines over one stream (a socketpair here, any byte stream elsewhere). When the
// stream closes, however that came about, it ends everything it started, grandchildren included, and exits.
//
//   driver -> agent   {"op":"start","role","argv":[..],"env":{..},"log","cwd","stdio"} {"op":"stop","role","grace_ms"}
//                     {"op":"shutdown","grace_ms"}
//                     a start with "stdio": true carries two descriptors (SCM_RIGHTS): the child's stdin and stdout
//   agent -> driver   {"event":"started","role","pid"}   {"event":"ready","role","pid","info":{..}}
//                     {"event":"exited","role","pid","code"|"signal","expected","log","tail":[..]}
//                     {"event":"failed","role","error"}   {"event":"bye","reason"}
//
// An agent that is asked to preload has done once what every start of certain commands begins with (for vime's own
// workers: load LibTorch), and starts those by a fork of itself, without exec. For the driver and for the children
// nothing else changes.
//
// Children find in their environment VIME_RUN_ID, VIME_READY_FD (see announce_ready) and VIME_CHILD (run id, agent,
// number: the mark by which orphans are recognised). "exited" and "failed" come when the child's whole tree is gone,
// not only its first process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::proc {

struct Command {
  std::string role;                        // unique among the living: "trainer-0", "engine-1"
  std::vector<std::string> argv;           // argv[0] is a path or is looked up in PATH; never a shell
  std::map<std::string, std::string> env;  // added to the agent's environment
  std::string log_path;                    // stdout and stderr go here (appended)
  std::string cwd;                         // "" = the agent's
  // Descriptors of the driver that become the child's stdin and stdout; both or neither. start() sends copies, the
  // caller closes its own. -1 = stdin is empty and stdout goes to the log.
  int stdin_fd = -1;
  int stdout_fd = -1;
};

struct Event {
  enum class Kind { started, ready, exited, failed, agent_lost };
  Kind kind = Kind::started;
  std::string role;
  int pid = 0;
  Json info;                          // ready: what the child announced
  std::optional<int> code;            // exited: exit status, or ...
  std::optional<int> signal;          // ... the signal that ended it
  std::string log_path;               // exited
  std::vector<std::string> log_tail;  // exited: the last 20 lines that it wrote (from the log's last 64 KiB)
  std::string error;                  // failed: why it could not be started ("exec \"x\": No such file or directory");
                                      // agent_lost: how the agent ended
  bool expected = false;              // exited: after stop() or shutdown()
};

// "exited with status 3", "was killed by signal 9 (SIGKILL)"
std::string describe_exit(const Event& event);

struct AgentOptions {
  bool preload =
      false;  // worth it where many workers are started: the agent takes LibTorch's memory and load time once
};

// The driver's end. One thread at a time.
class Agent {
 public:
  // Starts `<vime_binary> agent --fd N --run-id ID [--preload]` in its own session, so that a terminal's Ctrl-C does
  // not reach it. Waits for its exec (10 s at most). Throws Error{process_failed}. The run id must be unique: orphans
  // are known by it.
  Agent(const std::string& vime_binary, const std::string& run_id, const AgentOptions& options = {});
  ~Agent();  // shutdown(5 s); nothing that the agent started is alive afterwards
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Both return once the message is sent (10 s at most, then Error{process_failed}); what comes of it is an event.
  void start(const Command& command);
  // TERM to the process group, KILL to the whole tree after the grace. Nothing when the role has ended meanwhile.
  void stop(const std::string& role, std::chrono::milliseconds grace);
  // The next event, or nothing when none came in time. agent_lost is repeated for ever once it happened; before it is
  // told, whatever the agent left behind is killed (4 s at most). After shutdown: the events still queued, then nothing
  // at once.
  std::optional<Event> next_event(std::chrono::milliseconds timeout);
  // TERM to all, KILL after the grace, and waits until the agent itself has gone (grace + 8 s at the very worst).
  // Idempotent.
  void shutdown(std::chrono::milliseconds grace);
  int pid() const;
  int event_fd() const;  // readable when next_event has something; for poll

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a preloading agent runs in a fork of itself instead of by exec.
struct Preloaded {
  std::function<bool(const Command&)> covers;      // whether `main` can run the command; empty: none
  std::function<int(int argc, char** argv)> main;  // in the child: returns its exit status
};

// The agent's main: serves the stream on `fd` until it closes. Returns the exit status (0; 1 when a process would not
// end). With `preloaded`, remember_arguments must have been called. Must be called in a process with one thread, which
// it turns into a subreaper. SIGTERM, SIGINT and SIGHUP end it like a closed stream. Throws Error when `fd` is no open
// descriptor.
int agent_main(int fd, const std::string& run_id, Preloaded preloaded = {});

// Called once by a child to tell the driver that it serves ({"port": 4711, ...}); does nothing when no agent started
// it. Removes VIME_READY_FD from the environment (call it where no other thread reads that) and closes the descriptor.
void announce_ready(const Json& info);

}  // namespace vime::proc
