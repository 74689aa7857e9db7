#include "e2e/run_binary.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"

extern char** environ;

namespace vime::e2e {
namespace {

pid_t spawn(const std::vector<std::string>& argv, const std::vector<std::string>& env, const fs::path& out,
            const fs::path& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::string& variable : env) variables.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(ErrorKind::refused, "start " + argv[0] + ": " + errno_text(error));
  return pid;
}

// Whether the process ended in time.
bool wait_for_end(pid_t pid, std::chrono::milliseconds timeout) {
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const Deadline deadline(timeout);
  pollfd waited{handle.get(), POLLIN, 0};
  while (!deadline.passed()) {
    if (poll(&waited, 1, static_cast<int>(deadline.remaining().count())) > 0) return true;
  }
  return false;
}

}  // namespace

std::string vime_binary() {
  return std::string(VIME_BIN_DIR) + "/vime";
}

Program::Program(const std::vector<std::string>& argv, const std::vector<std::string>& env)
    : begin_(SteadyClock::now()), pid_(spawn(argv, env, folder_.path() / "out", folder_.path() / "err")) {}

Program::~Program() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Program::send_signal(int signal) const {
  kill(pid_, signal);
}

bool Program::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

Outcome Program::wait(std::chrono::milliseconds timeout) {
  Outcome outcome;
  outcome.timed_out = !wait_for_end(pid_, timeout);
  if (outcome.timed_out) kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  outcome.seconds = seconds_since(begin_);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  outcome.out = read_file(folder_.path() / "out");
  outcome.err = read_file(folder_.path() / "err");
  return outcome;
}

Outcome run_program(const std::vector<std::string>& argv, std::chrono::milliseconds timeout) {
  return Program(argv).wait(timeout);
}

Outcome run_vime(std::vector<std::string> arguments, std::chrono::milliseconds timeout) {
  arguments.insert(arguments.begin(), vime_binary());
  return run_program(arguments, timeout);
}

}  // namespace vime::e2e
