#include "reward/worker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "base/error.hpp"
#include "proc/spawn.hpp"

namespace vime::reward {
namespace {

// A write to a pipe whose reader has gone raises SIGPIPE, which would end the driver. The program's own disposition
// stays as it is: the signal is held back and taken out again.
ssize_t write_without_sigpipe(int fd, const char* bytes, size_t size) {
  sigset_t pipe_signal, before, pending;
  ::sigemptyset(&pipe_signal);
  ::sigaddset(&pipe_signal, SIGPIPE);
  ::sigpending(&pending);
  const bool was_pending = ::sigismember(&pending, SIGPIPE) == 1;
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t written = ::write(fd, bytes, size);
  const int error_number = errno;
  if (written < 0 && error_number == EPIPE && !was_pending) {
    const timespec now{0, 0};
    while (::sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error_number;
  return written;
}

}  // namespace

WorkerPipes::ChildEnds WorkerPipes::open() {
  close();
  auto [child_reads, driver_writes] = proc::make_pipe();
  auto [driver_reads, child_writes] = proc::make_pipe();
  // make_pipe's read ends do not block; the program's stdin must, and the driver must never.
  ::fcntl(child_reads.get(), F_SETFL, 0);
  ::fcntl(driver_writes.get(), F_SETFL, O_NONBLOCK);
  in_ = std::move(driver_writes);
  out_ = std::move(driver_reads);
  return {std::move(child_reads), std::move(child_writes)};
}

void WorkerPipes::close() {
  in_.reset();
  out_.reset();
  outbox_.clear();
  inbox_.clear();
  sent_ = 0;
}

void WorkerPipes::send(const std::string& line) {
  outbox_ += line;
  outbox_ += '\n';
}

void WorkerPipes::flush() {
  while (in_ && sent_ < outbox_.size()) {
    const ssize_t written = write_without_sigpipe(in_.get(), outbox_.data() + sent_, outbox_.size() - sent_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {
      in_.reset();
      break;
    }
    sent_ += static_cast<size_t>(written);
  }
  outbox_.clear();
  sent_ = 0;
}

WorkerPipes::State WorkerPipes::receive() {
  char buffer[65536];
  while (out_) {
    const ssize_t got = ::read(out_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return State::open;
    if (got <= 0) {
      out_.reset();
      break;
    }
    inbox_.append(buffer, static_cast<size_t>(got));
    if (inbox_.find('\n') != std::string::npos) return State::open;
    if (inbox_.size() > kLongestAnswer) return State::too_long;
  }
  return inbox_.find('\n') == std::string::npos ? State::ended : State::open;
}

std::optional<std::string> WorkerPipes::take_line() {
  const size_t end = inbox_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = inbox_.substr(0, end);
  inbox_.erase(0, end + 1);
  return line;
}

}  // namespace vime::reward
