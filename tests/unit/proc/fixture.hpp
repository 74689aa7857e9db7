// What the tests of this room share: the stand-in program, polling with a deadline, and a look at /proc of their own,
// so that the code under test is not its own witness.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "proc/agent.hpp"

namespace vime::proc::test {

using std::chrono::milliseconds;

inline const std::string kStandIn = std::string(VIME_BIN_DIR) + "/proc_test_child";

// Looks again and again until `holds` is true; false when it is not after `limit`.
bool eventually(const std::function<bool()>& holds, milliseconds limit = milliseconds(5000));

// Processes, zombies aside, whose environment or command line holds the text (a run id).
std::vector<pid_t> processes_with(const std::string& text);
bool is_alive(pid_t pid);  // false for a zombie
std::vector<pid_t> zombies_of(pid_t parent);
std::string command_line(pid_t pid);  // with spaces for the zero bytes between arguments, none at the end
size_t open_descriptors(pid_t pid);   // 0 = this process

// A process started without the code under test; killed and reaped at the end if it has not ended.
class Outsider {
 public:
  // argv[0] is only the name it goes by: the program is the stand-in. No environment but PATH.
  explicit Outsider(const std::vector<std::string>& argv);
  ~Outsider();
  Outsider(const Outsider&) = delete;
  Outsider& operator=(const Outsider&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;  // fails the test when it has ended: number 0 would stand for the test's own group
  // The next line it prints; fails the test after 20 s.
  std::string read_line();
  // Its wait status, or nothing when it did not end in time.
  std::optional<int> wait(milliseconds limit);

 private:
  pid_t pid_ = 0;
  UniqueFd output_;
  std::string buffer_;
};

// How the tests' agents start children: by exec, or with VIME_TEST_PRELOAD=1 in the environment by a fork of
// themselves. ctest runs this whole program both ways, since a child must not tell the difference.
AgentOptions default_options();

// One agent with a run id and a folder of its own.
struct Bench {
  explicit Bench(const AgentOptions& options = default_options());
  ~Bench() { agent.shutdown(milliseconds(0)); }
  Command command(const std::string& role, const std::vector<std::string>& mode) const;
  std::string log(const std::string& role) const { return (folder.path() / (role + ".log")).string(); }
  // Starts the command and waits for "started".
  Event start(const std::string& role, const std::vector<std::string>& mode);
  // Starts it and waits for "ready".
  Event start_ready(const std::string& role, const std::vector<std::string>& mode);
  // The next event, which must be of this kind and role and come within 10 s.
  Event expect(Event::Kind kind, const std::string& role);
  // Starts it and waits for its end; returns the "exited" event.
  Event run(const std::string& role, const std::vector<std::string>& mode);

  TempDir folder;
  std::string run_id;
  Agent agent;
};

// The pids that a child announced.
std::vector<pid_t> announced_pids(const Event& ready);

}  // namespace vime::proc::test
