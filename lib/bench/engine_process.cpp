#include "bench/engine_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "proc/spawn.hpp"

namespace vime::bench {
namespace {

constexpr milliseconds kEndTimeout{10'000};
constexpr const char* kName = "the engine's process";

}  // namespace

EngineProcess::EngineProcess(std::vector<std::string> command, const Json& options, milliseconds timeout)
    : timeout_(timeout), program_(command.at(0)) {
  command.push_back(options.dump());
  auto [stdin_read, stdin_write] = proc::make_pipe();
  auto [stdout_read, stdout_write] = proc::make_pipe();
  // Read ends come non-blocking, for whoever has a deadline. The engine has none: it waits for its next line.
  ::fcntl(stdin_read.get(), F_SETFL, 0);
  ::fcntl(stdin_write.get(), F_SETFL, O_NONBLOCK);
  proc::SpawnRequest request;
  request.argv = std::move(command);
  request.environment = proc::current_environment();
  request.stdin_fd = stdin_read.get();
  request.stdout_fd = stdout_write.get();
  request.dies_with_parent = true;
  proc::Spawned spawned = proc::spawn(request);
  child_ = proc::OwnedChild(spawned.pid, kName);
  exec_pipe_ = std::move(spawned.exec_pipe);
  stdin_ = std::move(stdin_write);
  stdout_ = std::move(stdout_read);
  stdin_read.reset();
  stdout_write.reset();
  const int64_t port = json_int(reply(), "port", "the engine's first line");
  if (port < 1 || port > 65535) {
    throw Error(ErrorKind::process_failed, std::string(kName) + ": no port has the number " + std::to_string(port));
  }
  port_ = static_cast<uint16_t>(port);
}

EngineProcess::~EngineProcess() {
  stdin_.reset();
  child_.end(kEndTimeout);
}

void EngineProcess::wait_for(int fd, short events, const Deadline& deadline) const {
  deadline.check(kName);
  pollfd polled{fd, events, 0};
  ::poll(&polled, 1, static_cast<int>(deadline.remaining().count()));
}

void EngineProcess::gone() {
  const std::string end = child_.end(milliseconds(1000));
  const proc::ExecOutcome started = proc::read_exec_outcome(exec_pipe_.get(), program_, "");
  throw Error(ErrorKind::process_failed,
              std::string(kName) + ": " + (started.failure.empty() ? "it " + end : started.failure));
}

void EngineProcess::send(const Json& call) {
  const std::string line = call.dump() + "\n";
  const Deadline deadline(timeout_);
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t put = ::write(stdin_.get(), line.data() + at, line.size() - at);
    if (put >= 0) {
      at += static_cast<std::size_t>(put);
    } else if (errno == EAGAIN) {
      wait_for(stdin_.get(), POLLOUT, deadline);
    } else if (errno == EPIPE) {
      gone();
    } else if (errno != EINTR) {
      throw_errno(ErrorKind::process_failed, std::string("tell ") + kName);
    }
  }
}

Json EngineProcess::reply() {
  const Deadline deadline(timeout_);
  std::size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    char piece[4096];
    const ssize_t got = ::read(stdout_.get(), piece, sizeof piece);
    if (got == 0) gone();
    if (got > 0) {
      read_.append(piece, static_cast<std::size_t>(got));
    } else if (errno == EAGAIN) {
      wait_for(stdout_.get(), POLLIN, deadline);
    } else if (errno != EINTR) {
      throw_errno(ErrorKind::process_failed, std::string("read from ") + kName);
    }
  }
  const Json reply = parse_json(read_.substr(0, end), "the engine's reply");
  read_.erase(0, end + 1);
  if (reply.contains("error")) {
    throw Error(ErrorKind::process_failed, "engine: " + json_string(reply, "error", "the engine's reply"));
  }
  return reply;
}

}  // namespace vime::bench
