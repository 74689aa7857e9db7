// What a test runs in another process: CUDA does not survive a fork, so the test binary starts itself anew.
#pragma once

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

// A role running in a process of its own, ended when this goes.
class RoleProcess {
 public:
  RoleProcess(const std::string& role, const std::vector<std::string>& arguments);
  ~RoleProcess();
  RoleProcess(const RoleProcess&) = delete;
  RoleProcess& operator=(const RoleProcess&) = delete;
  // Blocks until it ends; what it wrote to stdout is in output(). -1 when it was ended by a signal.
  int wait();
  const std::string& output() const { return output_; }
  std::string read_line();                   // the next line of its stdout, without the newline; "" at the end
  void write_line(const std::string& line);  // to its stdin
  void kill();
  void stop();  // it does nothing more, as a process that hangs; kill() still ends it

 private:
  int pid_ = -1;
  int stdout_ = -1;
  int stdin_ = -1;
  std::string output_;
};

}  // namespace vime::test
