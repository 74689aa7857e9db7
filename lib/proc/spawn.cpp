#include "proc/spawn.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "proc/process.hpp"

namespace vime::proc {
namespace {

enum Step : int { kStdio, kFolder, kExec };

struct Failure {
  int step;
  int error_number;
};

// Everything the child needs, made before the fork.
struct ChildPlan {
  const SpawnRequest& request;
  const std::vector<std::string>& environment;
  const char* program;
  char* const* argv;
  char* const* envp;
  const char* cwd;
  int stdio[3];
  int kept_fd;
  bool new_session;
  bool dies_with_parent;
  pid_t parent;
  int failure_fd;
};

constexpr unsigned kNow = 0;
constexpr unsigned kOnExec = 1u << 2;  // CLOSE_RANGE_CLOEXEC of Linux 5.11

void close_range(unsigned first, unsigned last, unsigned when) {
  if (first > last || ::syscall(SYS_close_range, first, last, when) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const unsigned end = std::min(static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 65536)), last);
  for (unsigned fd = first; fd <= end; ++fd) {
    if (when == kOnExec) {
      ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
    } else {
      ::close(static_cast<int>(fd));
    }
  }
}

[[noreturn]] void give_up(const ChildPlan& plan, Step step) {
  const Failure failure{step, errno};
  [[maybe_unused]] const ssize_t written = ::write(plan.failure_fd, &failure, sizeof failure);
  ::_exit(127);
}

// Returns only when argv has no room.
void become_main(const ChildPlan& plan) {
  std::vector<char*> argv = take_command_line(plan.request.argv, plan.environment);
  if (argv.empty()) return;
  // The failure pipe is among them, and its end tells the caller that the command runs.
  const auto kept = static_cast<unsigned>(plan.kept_fd);
  close_range(3, plan.kept_fd < 0 ? ~0u : kept - 1, kNow);
  if (plan.kept_fd >= 0) close_range(kept + 1, ~0u, kNow);
  const int status = plan.request.main(static_cast<int>(argv.size()) - 1, argv.data());
  std::fflush(nullptr);
  ::_exit(status);
}

// noexcept: an exception out of main must end this process, and not find the handlers of the caller, whose stack is
// still below.
[[noreturn]] void become_program(const ChildPlan& plan) noexcept {
  if (plan.new_session) {
    ::setsid();
  } else {
    ::setpgid(0, 0);
  }
  if (plan.dies_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);  // the parent went before the line above took effect
  }
  for (int fd = 0; fd < 3; ++fd) {
    if (plan.stdio[fd] >= 0 && ::dup2(plan.stdio[fd], fd) < 0) give_up(plan, kStdio);
  }
  if (plan.cwd != nullptr && ::chdir(plan.cwd) != 0) give_up(plan, kFolder);
  close_range(3, ~0u, kOnExec);
  if (plan.kept_fd >= 0) ::fcntl(plan.kept_fd, F_SETFD, 0);
  // exec resets handlers but keeps ignored signals ignored and blocked signals blocked.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.request.main) become_main(plan);
  ::execve(plan.program, plan.argv, plan.envp);
  give_up(plan, kExec);
}

std::string find_program(const std::string& name, const std::map<std::string, std::string>& environment) {
  if (name.find('/') != std::string::npos) return name;
  const auto path = environment.find("PATH");
  int error_number = ENOENT;
  for (const std::string& folder : split(path == environment.end() ? "/usr/bin:/bin" : path->second, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    struct stat status {};
    if (::stat(candidate.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    error_number = EACCES;
  }
  throw Error(ErrorKind::process_failed, "exec \"" + name + "\": " + errno_text(error_number),
              "it is in no folder of PATH");
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

}  // namespace

Spawned spawn(const SpawnRequest& request) {
  if (request.argv.empty() || request.argv[0].empty())
    throw Error(ErrorKind::process_failed, "exec \"\": no program named");
  const std::string program = find_program(request.argv[0], request.environment);
  std::vector<std::string> entries;
  for (const auto& [name, value] : request.environment) entries.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(request.argv);
  const std::vector<char*> envp = pointers(entries);
  auto [read_end, write_end] = make_pipe();
  const ChildPlan plan{request,
                       entries,
                       program.c_str(),
                       argv.data(),
                       envp.data(),
                       request.cwd.empty() ? nullptr : request.cwd.c_str(),
                       {request.stdin_fd, request.stdout_fd, request.stderr_fd},
                       request.kept_fd,
                       request.new_session,
                       request.dies_with_parent,
                       ::getpid(),
                       write_end.get()};
  // With signals blocked no handler of this program runs in the child, where it would act on shared descriptors.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) become_program(plan);
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw Error(ErrorKind::exhausted, "fork for \"" + program + "\": " + errno_text(error_number));
  // In both processes, so that the group exists before either goes on. Fails harmlessly once the child has done exec.
  if (!request.new_session) ::setpgid(pid, pid);
  return {pid, std::move(read_end)};
}

ExecOutcome read_exec_outcome(int exec_pipe, const std::string& program, const std::string& cwd) {
  Failure failure{};
  ssize_t got;
  do {
    got = ::read(exec_pipe, &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return {false, ""};
  if (got != static_cast<ssize_t>(sizeof failure)) return {true, ""};
  const std::string reason = ": " + errno_text(failure.error_number);
  switch (failure.step) {
    case kStdio:
      return {true, "redirect the output of \"" + program + "\"" + reason};
    case kFolder:
      return {true, "change to folder \"" + cwd + "\"" + reason};
    default:
      return {true, "exec \"" + program + "\"" + reason};
  }
}

std::map<std::string, std::string> current_environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

UniqueFd above_stdio(UniqueFd fd) {
  if (!fd || fd.get() >= 3) return fd;
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!moved) throw_errno(ErrorKind::exhausted, "duplicate a descriptor");
  return moved;
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno(ErrorKind::exhausted, "make a pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  return {above_stdio(std::move(read_end)), above_stdio(std::move(write_end))};
}

UniqueFd open_null() {
  UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!fd) throw_errno(ErrorKind::exhausted, "open /dev/null");
  return above_stdio(std::move(fd));
}

}  // namespace vime::proc
