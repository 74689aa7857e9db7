// A child of this process that never outlives its owner, whichever way the owner goes: an error between its start and
// its first answer included. One thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/deadline.hpp"

namespace vime::proc {

class OwnedChild {
 public:
  OwnedChild() = default;
  // Takes a child that nobody else waits for. name: for the log, "the engine's process".
  OwnedChild(pid_t pid, std::string name);
  OwnedChild(OwnedChild&& other) noexcept;
  OwnedChild& operator=(OwnedChild&& other) noexcept;
  ~OwnedChild();  // end(0)

  pid_t pid() const { return pid_; }  // 0 once it has been reaped
  // Waits until it has ended by itself, SIGKILL after the grace. Returns at the latest 10 s after that; what even KILL
  // does not end is logged. How it ended: "exited with status 3", "was killed by signal 9 (SIGKILL)"; "" when that is
  // not known. Nothing to do the second time.
  std::string end(milliseconds grace);

 private:
  pid_t pid_ = 0;
  std::string name_;
};

}  // namespace vime::proc
