// The trace file: one line for every message on a TCPStore connection ("worker 0 > 00cef7853c", "worker 0 < 00"), for
// every HTTP call ("POST /pause?mode=abort 200") and for every collective. Any thread.
#pragma once

#include <mutex>
#include <string>

namespace vime::stand_in {

class Trace {
 public:
  explicit Trace(std::string path) : path_(std::move(path)) {}  // "": nothing is written
  void line(const std::string& text);

 private:
  std::string path_;
  std::mutex mutex_;
};

}  // namespace vime::stand_in
