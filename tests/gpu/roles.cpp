#include "gpu/roles.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <stdexcept>

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

RoleProcess::RoleProcess(const std::string& role, const std::vector<std::string>& arguments) {
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
  if (pid_ > 0) {
    kill();
    wait();
  }
  ::close(stdout_);
  ::close(stdin_);
}

void RoleProcess::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void RoleProcess::stop() {
  if (pid_ > 0) ::kill(pid_, SIGSTOP);
}

int RoleProcess::wait() {
  while (!read_line().empty()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string RoleProcess::read_line() {
  std::string line;
  char c = 0;
  while (::read(stdout_, &c, 1) == 1) {
    output_ += c;
    if (c == '\n') return line.empty() ? read_line() : line;
    line += c;
  }
  return line;
}

void RoleProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(stdin_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw std::runtime_error("write");
}

}  // namespace vime::test
