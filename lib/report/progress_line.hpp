// One line that says how far the run is. On a terminal it is overprinted; elsewhere plain lines appear at most every
// `interval`. Log lines pass through it while it is attached, so that they do not tear it. Any thread may call; calls
// block on the stream only.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/deadline.hpp"

namespace vime::report {

struct ProgressOptions {
  bool terminal = false;
  int width = 80;  // columns of the terminal; longer lines are cut
  milliseconds interval{2000};
};

// What stderr is: a terminal unless TERM is "dumb" or unset, and its width.
ProgressOptions progress_options_for_stderr();
void write_to_stderr(std::string_view text);

class ProgressLine {
 public:
  using Write = std::function<void(std::string_view)>;
  ProgressLine(ProgressOptions options, Write write) : options_(options), write_(std::move(write)) {}
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows `text` (one line, no newline). Elsewhere than on a terminal the first text is written and then at most one
  // per interval.
  void update(std::string_view text, SteadyClock::time_point now);
  // Leaves the last text standing, on a line of its own; elsewhere writes it where it was held back.
  void finish();
  // Writes a line (which ends with a newline) above the progress line.
  void print(std::string_view line);

  // Takes the log's lines until detached or destroyed. One ProgressLine of the process at a time (VIME_CHECKed).
  void attach_log();
  void detach_log();

 private:
  void draw();

  const ProgressOptions options_;
  const Write write_;
  std::mutex mutex_;
  std::string text_;    // the latest
  bool shown_ = false;  // terminal: the line is on the screen; elsewhere: text_ has been written
  bool wrote_before_ = false;
  SteadyClock::time_point last_write_{};
};

}  // namespace vime::report
