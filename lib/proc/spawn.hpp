// Fork and exec, for the driver (which may have threads) and for the agent. Everything that allocates happens before
// the fork; the child makes only async-signal-safe calls until exec. What fails after the fork is told through a pipe
// that exec closes. The agent may also fork a copy of itself that goes on as another command: what exec gives a new
// process is then done by hand.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/files.hpp"

namespace vime::proc {

struct SpawnRequest {
  std::vector<std::string> argv;  // argv[0] is a path, or is looked up in the PATH of `environment`
  std::map<std::string, std::string> environment;
  std::string cwd;    // "" = the caller's
  int stdin_fd = -1;  // -1 = the caller's; others must be >= 3
  int stdout_fd = -1;
  int stderr_fd = -1;
  int kept_fd = -1;               // stays open under its number; all others from 3 on are closed
  bool new_session = false;       // else a process group of its own in the caller's session
  bool dies_with_parent = false;  // SIGKILL when the calling thread ends
  // What the new process does instead of exec, if given: it ends with the status that this returns, without the exit
  // handlers and destructors of the calling process. Only for callers with one thread that called remember_arguments. A
  // command line that is too long for the memory of theirs still goes to exec.
  std::function<int(int argc, char** argv)> main;
};

struct Spawned {
  pid_t pid = 0;
  UniqueFd exec_pipe;  // non-blocking; see read_exec_outcome
};

// Signal handlers and masks are back to their defaults in the new process. Throws Error{process_failed} when nothing
// was started: `exec "x": No such file or directory`.
Spawned spawn(const SpawnRequest& request);

struct ExecOutcome {
  bool settled = false;
  std::string failure;  // settled and empty: the program runs
};
ExecOutcome read_exec_outcome(int exec_pipe, const std::string& program, const std::string& cwd);

// A variable that only makes the environment of a process larger: room for the command lines that its forks take on.
inline constexpr const char* kArgumentRoom = "VIME_ARGUMENT_ROOM";

// This process's environment.
std::map<std::string, std::string> current_environment();

// The same descriptor under a number >= 3, close-on-exec: safe from the dup2 calls onto 0, 1 and 2.
UniqueFd above_stdio(UniqueFd fd);
// A pipe (read end, write end), both above stdio and close-on-exec, the read end non-blocking.
std::pair<UniqueFd, UniqueFd> make_pipe();
UniqueFd open_null();

}  // namespace vime::proc
