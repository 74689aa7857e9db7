// The line files of a run directory: metrics.jsonl and events.jsonl. Each call appends one whole line in a single
// write, so that a reader never sees half an object after a crash. One thread per writer; calls block on the disk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::report {

// `object` as one line of valid JSON: numbers that are not finite become null and their names are listed under
// "nonfinite"; ill-formed UTF-8 is replaced. Without the newline.
std::string json_line(const Json& object);

class MetricsWriter {
 public:
  explicit MetricsWriter(fs::path path) : path_(std::move(path)) {}
  // One object per step: {"step": step, ...metrics}. `metrics` is a flat object of numbers; Error{internal} otherwise.
  void write(int64_t step, const Json& metrics);

 private:
  fs::path path_;
};

// What happened, for people and scripts that look for a moment: {"time", "kind", ...fields}.
class EventLog {
 public:
  // `now` gives the time text (utc_now in a run).
  EventLog(fs::path path, std::function<std::string()> now) : path_(std::move(path)), now_(std::move(now)) {}
  // `fields` is an object; its members follow time and kind, whose names they must not use (Error{internal}).
  void write(const std::string& kind, const Json& fields = Json::object());

 private:
  fs::path path_;
  std::function<std::string()> now_;
};

}  // namespace vime::report
