#include "bench/engine_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "proc/spawn.hpp"

namespace vime::bench {
namespace {

constexpr milliseconds kReplyTimeout{120'000};
constexpr milliseconds kEndTimeout{10'000};

}  // namespace

EngineProcess::EngineProcess(std::vector<std::string> command, const Json& options) {
  command.push_back(options.dump());
  auto [stdin_read, stdin_write] = proc::make_pipe();
  auto [stdout_read, stdout_write] = proc::make_pipe();
  // The read ends are made for whoever waits for several; the engine's waits for its next line.
  ::fcntl(stdin_read.get(), F_SETFL, 0);
  proc::SpawnRequest request;
  request.argv = std::move(command);
  request.environment = proc::current_environment();
  request.stdin_fd = stdin_read.get();
  request.stdout_fd = stdout_write.get();
  request.dies_with_parent = true;
  pid_ = proc::spawn(request).pid;
  stdin_ = std::move(stdin_write);
  stdout_ = std::move(stdout_read);
  stdin_read.reset();
  stdout_write.reset();
  port_ = static_cast<uint16_t>(json_int(reply(), "port", "the engine's first line"));
}

EngineProcess::~EngineProcess() {
  stdin_.reset();
  const Deadline deadline(kEndTimeout);
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (deadline.passed()) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(milliseconds(5));
  }
}

void EngineProcess::send(const Json& call) {
  const std::string line = call.dump() + "\n";
  if (::write(stdin_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw_errno(ErrorKind::process_failed, "tell the engine");
  }
}

Json EngineProcess::reply() {
  const Deadline deadline(kReplyTimeout);
  std::size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    deadline.check("the engine's process");
    pollfd polled{stdout_.get(), POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(deadline.remaining().count())) <= 0) continue;
    char piece[4096];
    const ssize_t got = ::read(stdout_.get(), piece, sizeof piece);
    if (got == 0) throw Error(ErrorKind::process_failed, "the engine's process has ended");
    if (got > 0) read_.append(piece, static_cast<std::size_t>(got));
  }
  const Json reply = parse_json(read_.substr(0, end), "the engine's reply");
  read_.erase(0, end + 1);
  if (reply.contains("error")) {
    throw Error(ErrorKind::process_failed, "engine: " + json_string(reply, "error", "the engine's reply"));
  }
  return reply;
}

}  // namespace vime::bench
