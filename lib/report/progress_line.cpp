#include "report/progress_line.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "base/log.hpp"

namespace vime::report {
namespace {

// The log hands its lines to a plain function, so the line that takes them has to be found from here. The lock is held
// while a line is passed on: after detach_log returns, no thread is inside the ProgressLine any more.
std::mutex attached_mutex;
ProgressLine* attached_line = nullptr;

void pass_log_line(const std::string& line) {
  const std::lock_guard lock(attached_mutex);
  if (attached_line != nullptr) {
    attached_line->print(line);
  } else {
    write_to_stderr(line);
  }
}

// The first `columns` characters; counts bytes that begin a UTF-8 character.
std::string_view cut(std::string_view text, int columns) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;
    if (seen++ == columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

ProgressOptions progress_options_for_stderr() {
  ProgressOptions options;
  const char* term = std::getenv("TERM");
  options.terminal = ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  winsize size{};
  if (options.terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.width = size.ws_col;
  return options;
}

void write_to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

ProgressLine::~ProgressLine() {
  detach_log();
  finish();
}

void ProgressLine::update(std::string_view text, SteadyClock::time_point now) {
  const std::lock_guard lock(mutex_);
  text_ = text;
  if (options_.terminal) {
    draw();
  } else if (!wrote_before_ || now - last_write_ >= options_.interval) {
    write_(text_ + "\n");
    wrote_before_ = true;
    last_write_ = now;
    shown_ = true;
  } else {
    shown_ = false;
  }
}

void ProgressLine::finish() {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) return;
  if (options_.terminal) {
    if (shown_) write_("\n");
  } else if (!shown_) {
    write_(text_ + "\n");
  }
  text_.clear();
  shown_ = false;
}

void ProgressLine::print(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!options_.terminal || !shown_) {
    write_(line);
    return;
  }
  write_("\r\x1b[K" + std::string(line));
  draw();
}

void ProgressLine::attach_log() {
  const std::lock_guard lock(attached_mutex);
  VIME_CHECK(attached_line == nullptr || attached_line == this, "another progress line has the log");
  attached_line = this;
  log::set_sink(pass_log_line);
}

void ProgressLine::detach_log() {
  const std::lock_guard lock(attached_mutex);
  if (attached_line != this) return;
  attached_line = nullptr;
  log::set_sink(nullptr);
}

void ProgressLine::draw() {
  // One column stays free: a full last column makes some terminals wrap, and then the line cannot be overprinted.
  write_("\r\x1b[K" + std::string(cut(text_, options_.width - 1)));
  shown_ = true;
}

}  // namespace vime::report
