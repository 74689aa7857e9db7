// Runs the built `vime` and keeps what it wrote. Blocks until it ends; kills it at the deadline and says so in the
// result.
#pragma once

#include <chrono>
#include <string>
#include <vector>

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

Outcome run_program(const std::vector<std::string>& argv, std::chrono::milliseconds timeout);
Outcome run_vime(std::vector<std::string> arguments, std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace vime::e2e
