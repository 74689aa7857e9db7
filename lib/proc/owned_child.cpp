#include "proc/owned_child.hpp"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "proc/agent.hpp"

namespace vime::proc {
namespace {

constexpr milliseconds kKillTimeout{10'000};
constexpr milliseconds kGlance{2};

// Nothing while it has not ended by the deadline.
std::optional<std::string> reap(pid_t pid, const Deadline& deadline) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) return "";
    if (ended == pid) {
      Event event;
      if (WIFEXITED(status)) event.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) event.signal = WTERMSIG(status);
      return describe_exit(event);
    }
    if (deadline.passed()) return std::nullopt;
    std::this_thread::sleep_for(kGlance);
  }
}

}  // namespace

OwnedChild::OwnedChild(pid_t pid, std::string name) : pid_(pid), name_(std::move(name)) {}

OwnedChild::OwnedChild(OwnedChild&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), name_(std::move(other.name_)) {}

OwnedChild& OwnedChild::operator=(OwnedChild&& other) noexcept {
  if (this == &other) return *this;
  end(milliseconds(0));
  pid_ = std::exchange(other.pid_, 0);
  name_ = std::move(other.name_);
  return *this;
}

OwnedChild::~OwnedChild() {
  end(milliseconds(0));
}

std::string OwnedChild::end(milliseconds grace) {
  const pid_t pid = std::exchange(pid_, 0);
  if (pid == 0) return "";
  if (const auto ended = reap(pid, Deadline(grace))) return *ended;
  ::kill(pid, SIGKILL);  // not reaped, so the number is still the child's
  if (const auto ended = reap(pid, Deadline(kKillTimeout))) return *ended;
  log::error("proc", name_ + " (pid " + std::to_string(pid) + ") did not end on SIGKILL");
  return "";
}

}  // namespace vime::proc
