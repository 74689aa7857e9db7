// What a test runs in another process: CUDA does not survive a fork, so the test binary starts itself anew.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace vime::test {

using RoleMain = int (*)(const std::vector<std::string>& arguments);

// At namespace scope: `const vime::test::Role reader("reader", [](const auto& arguments) { ...; return 0; });`
struct Role {
  Role(const char* name, RoleMain main);
};

// main() calls this first: the exit status of the role that the command line names, or -1 when it names none.
int run_role(int argc, char** argv);

// A role running in a process of its own, ended when this goes. What waits for it throws Error{process_failed} with the
// role's name when the time is up.
class RoleProcess {
 public:
  static constexpr std::chrono::milliseconds kPatience{60'000};

  RoleProcess(const std::string& role, const std::vector<std::string>& arguments);
  ~RoleProcess();
  RoleProcess(const RoleProcess&) = delete;
  RoleProcess& operator=(const RoleProcess&) = delete;
  // Blocks until it ends; its exit status, -1 when it was ended by a signal.
  int wait(std::chrono::milliseconds timeout = kPatience);
  // The next line of its stdout that is not empty, without the newline; "" at the end.
  std::string read_line(std::chrono::milliseconds timeout = kPatience);
  void write_line(const std::string& line);  // to its stdin
  void kill();
  void stop();  // it does nothing more, as a process that hangs; kill() still ends it

 private:
  bool reap(std::chrono::milliseconds timeout, int& status);

  std::string role_;
  int pid_ = -1;
  int stdout_ = -1;
  int stdin_ = -1;
  std::string read_;  // behind the last line
};

}  // namespace vime::test
