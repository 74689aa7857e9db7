// The driver's ends of one worker's stdin and stdout. Owns both descriptors. Nothing blocks; one thread.
#pragma once

#include <optional>
#include <string>

#include "base/files.hpp"

namespace vime::reward {

// A worker's line may not be longer: what comes then is no answer.
inline constexpr size_t kLongestAnswer = 1u << 20;

class WorkerPipes {
 public:
  // What the new process gets; close both once it was started.
  struct ChildEnds {
    UniqueFd stdin_end, stdout_end;
  };
  // Fresh pipes, all above stdio and closed on exec. Error{exhausted}.
  ChildEnds open();
  void close();

  void send(const std::string& line);  // queued; a line end is added
  // Writes what the pipe takes. A reader that has gone is noticed by receive().
  void flush();

  enum class State { open, ended, too_long };
  // Takes what has come; `ended` at the end of the stream, when all lines were taken.
  State receive();
  std::optional<std::string> take_line();
  const std::string& unfinished() const { return inbox_; }

  int read_fd() const { return out_.get(); }
  int write_fd() const { return outbox_.size() > sent_ ? in_.get() : -1; }  // -1 = nothing to write

 private:
  UniqueFd in_, out_;
  std::string outbox_, inbox_;
  size_t sent_ = 0;
};

}  // namespace vime::reward
