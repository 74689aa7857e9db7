#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.hpp"
#include "base/files.hpp"
#include "proc/agent.hpp"

namespace vime::proc {

void announce_ready(const Json& info) {
  const char* number = std::getenv("VIME_READY_FD");
  if (number == nullptr) return;
  UniqueFd fd(std::atoi(number));
  // Children of this process must take neither the variable nor the descriptor for their own.
  ::unsetenv("VIME_READY_FD");
  struct stat status {};
  // A program in between may have closed the pipe, and the number may mean something else by now.
  if (fd.get() < 3 || ::fstat(fd.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) {
    fd.release();
    throw Error(ErrorKind::process_failed,
                std::string("VIME_READY_FD=") + number + ": expected the pipe that the agent made",
                "the agent cannot be told that this process is ready");
  }
  const std::string line = info.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t written = ::write(fd.get(), line.data() + sent, line.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno(ErrorKind::process_failed, "tell the agent that this process is ready");
    sent += static_cast<size_t>(written);
  }
}

}  // namespace vime::proc
