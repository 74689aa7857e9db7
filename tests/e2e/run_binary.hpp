// Runs the built `vime` and keeps what it wrote. Blocks until it ends; kills it at the deadline and says so in the
// result.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/files.hpp"

namespace vime::e2e {

struct Outcome {
  int status = -1;  // exit status; -1 when a signal ended it
  int signal = 0;   // that signal
  bool timed_out = false;
  double seconds = 0;
  std::string out, err;
};

// Path of the built binary.
std::string vime_binary();

// A program under way. Its output goes to files of its own; the destructor kills it if it still runs.
class Program {
 public:
  // env: "NAME=value", added to this process's environment.
  explicit Program(const std::vector<std::string>& argv, const std::vector<std::string>& env = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send_signal(int signal) const;
  bool has_ended() const;
  // Kills it at the deadline.
  Outcome wait(std::chrono::milliseconds timeout);

 private:
  TempDir folder_;
  SteadyClock::time_point begin_;
  int pid_ = 0;
  bool reaped_ = false;
};

Outcome run_program(const std::vector<std::string>& argv, std::chrono::milliseconds timeout);
Outcome run_vime(std::vector<std::string> arguments, std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace vime::e2e
