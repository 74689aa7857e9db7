#include "gpu/roles.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/deadline.hpp"

namespace vime::test {
namespace {

std::map<std::string, RoleMain>& roles() {
  static std::map<std::string, RoleMain> all;
  return all;
}

constexpr const char* kFlag = "--role";

}  // namespace

Role::Role(const char* name, RoleMain main) {
  roles()[name] = main;
}

int run_role(int argc, char** argv) {
  if (argc < 3 || std::string(argv[1]) != kFlag) return -1;
  return roles().at(argv[2])({argv + 3, argv + argc});
}

RoleProcess::RoleProcess(const std::string& role, const std::vector<std::string>& arguments) : role_(role) {
  int out[2], in[2];
  if (::pipe(out) != 0 || ::pipe(in) != 0) throw std::runtime_error("pipe");
  std::vector<std::string> words = {"/proc/self/exe", kFlag, role};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(out[1], 1);
    ::dup2(in[0], 0);
    for (const int fd : {out[0], out[1], in[0], in[1]}) ::close(fd);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(in[0]);
  stdout_ = out[0];
  stdin_ = in[1];
}

RoleProcess::~RoleProcess() {
  int status = 0;
  kill();
  if (pid_ > 0) reap(kPatience, status);
  ::close(stdout_);
  ::close(stdin_);
}

void RoleProcess::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void RoleProcess::stop() {
  if (pid_ > 0) ::kill(pid_, SIGSTOP);
}

bool RoleProcess::reap(std::chrono::milliseconds timeout, int& status) {
  const Deadline deadline(timeout);
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  pid_ = -1;
  return true;
}

int RoleProcess::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  while (!read_line(deadline.remaining()).empty()) {
  }
  int status = 0;
  if (!reap(deadline.remaining(), status)) deadline.check("end of role " + role_);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string RoleProcess::read_line(std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  for (;;) {
    read_.erase(0, read_.find_first_not_of('\n'));
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      const std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    pollfd polled{stdout_, POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(deadline.remaining().count())) <= 0) {
      deadline.check("role " + role_);
      continue;
    }
    char piece[4096];
    const ssize_t got = ::read(stdout_, piece, sizeof piece);
    if (got <= 0) return std::exchange(read_, "");
    read_.append(piece, static_cast<size_t>(got));
  }
}

void RoleProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(stdin_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw std::runtime_error("write");
}

}  // namespace vime::test
