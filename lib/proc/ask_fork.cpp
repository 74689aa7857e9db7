#include "proc/ask_fork.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "proc/owned_child.hpp"
#include "proc/process.hpp"
#include "proc/spawn.hpp"

namespace vime::proc {
namespace {

// The answer, and what stands where it would be when `answer` threw.
constexpr char kAnswered = 'a';
constexpr char kFailed = 'f';

// An exception must not find the handlers of the asking process, whose stack is still below.
[[noreturn]] void answer_and_leave(int out, int parent, const std::function<std::string()>& answer) noexcept {
  if (!die_with_parent(parent)) ::_exit(1);
  std::string text;
  try {
    text = kAnswered + answer();
  } catch (const std::exception& error) {
    text = kFailed + std::string(error.what());
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t put = ::write(out, text.data() + at, text.size() - at);
    if (put < 0 && errno != EINTR) ::_exit(1);
    at += put > 0 ? static_cast<std::size_t>(put) : 0;
  }
  ::_exit(0);
}

std::string read_to_end(int fd, const Deadline& deadline, const std::string& who) {
  std::string text;
  for (;;) {
    char piece[4096];
    const ssize_t got = ::read(fd, piece, sizeof piece);
    if (got == 0) return text;
    if (got > 0) {
      text.append(piece, static_cast<std::size_t>(got));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw_errno(ErrorKind::process_failed, who + ": read the answer");
    deadline.check(who);
    pollfd polled{fd, POLLIN, 0};
    ::poll(&polled, 1, static_cast<int>(deadline.remaining().count()));
  }
}

}  // namespace

std::string ask_fork(const std::string& who, milliseconds timeout, const std::function<std::string()>& answer) {
  auto [in, out] = make_pipe();
  const int parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno(ErrorKind::exhausted, "fork to ask " + who);
  if (pid == 0) answer_and_leave(out.get(), parent, answer);
  OwnedChild child(pid, who);
  out.reset();
  const Deadline deadline(timeout);
  const std::string text = read_to_end(in.get(), deadline, who);
  const std::string end = child.end(deadline.remaining());
  if (text.empty()) throw Error(ErrorKind::process_failed, who + ": no answer: the process that was asked " + end);
  if (text.front() != kAnswered) throw Error(ErrorKind::process_failed, who + ": " + text.substr(1));
  return text.substr(1);
}

}  // namespace vime::proc
