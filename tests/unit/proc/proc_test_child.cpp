// Stands in for the vime binary in the tests of this room: agent, children of every bad habit, and a driver that can be
// killed. Every mode except the agent ends by SIGALRM after two minutes, so that a failing test leaves nothing behind.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "proc/agent.hpp"
#include "proc/process.hpp"

using vime::Json;
using namespace vime::proc;

namespace {

using Arguments = std::vector<std::string>;

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

// Forks a process that says on a pipe that it has done `prepare`, and sleeps; returns its pid once it has said so.
pid_t fork_sleeper(const std::function<void()>& prepare) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(120);
    prepare();
    if (::write(ends[1], "x", 1) != 1) ::_exit(1);
    ::close(ends[0]);
    ::close(ends[1]);
    sleep_for_ever();
  }
  char byte;
  if (::read(ends[0], &byte, 1) != 1) std::abort();
  ::close(ends[0]);
  ::close(ends[1]);
  return pid;
}

// Tells its pid on the pipe, and so that /proc shows it as the daemon that it is from now on.
[[noreturn]] void be_daemon(int pipe) {
  const pid_t own = ::getpid();
  if (::write(pipe, &own, sizeof own) != sizeof own) ::_exit(1);
  ::close(pipe);
  sleep_for_ever();
}

// A daemon as the books teach: fork, setsid, fork again, the middle one leaves. Returns the daemon's pid.
pid_t double_fork(const std::string& run_id, bool clear_environment) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t middle = ::fork();
  if (middle == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::alarm(120);
    ::close(ends[0]);
    if (clear_environment) {
      ::execle("/proc/self/exe", "daemon", "daemon", std::to_string(ends[1]).c_str(), run_id.c_str(), nullptr,
               static_cast<char* const*>(nullptr));
      ::_exit(1);
    }
    be_daemon(ends[1]);
  }
  pid_t daemon = 0;
  if (::read(ends[0], &daemon, sizeof daemon) != sizeof daemon) std::abort();
  ::waitpid(middle, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return daemon;
}

int run_mode(int argc, char** argv);
pid_t preloaded_by = 0;

int run_forked(int argc, char** argv) {
  if (std::string(argv[1]) != "throw") return run_mode(argc, argv);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  throw vime::Error(vime::ErrorKind::internal, "thrown by a forked child");
}

int run_agent(const Arguments& arguments) {  // --fd N --run-id ID [--preload]
  ::alarm(0);
  Preloaded preloaded;
  if (arguments.size() > 4) {
    preloaded_by = ::getpid();
    preloaded.covers = [](const Command& command) { return command.argv[0] == own_binary(); };
    preloaded.main = run_forked;
  }
  return agent_main(std::stoi(arguments.at(1)), arguments.at(3), preloaded);
}

// Tells which process did the preloading that it finds, if any.
int run_witness(const Arguments&) {
  announce_ready({{"preloaded_by", preloaded_by}, {"parent", ::getppid()}});
  sleep_for_ever();
}

int run_sleep(const Arguments&) {
  announce_ready({{"pid", ::getpid()}});
  sleep_for_ever();
}

int run_daemon(const Arguments& arguments) {  // FD, and any text
  be_daemon(std::stoi(arguments.at(0)));
}

// Becomes the same program again and again, without end.
int run_exec(const Arguments&) {
  ::execl("/proc/self/exe", "exec", "exec", nullptr);
  return 1;
}

int run_ignore_term(const Arguments&) {
  std::signal(SIGTERM, SIG_IGN);
  announce_ready({{"pid", ::getpid()}});
  sleep_for_ever();
}

int run_fork_grandchildren(const Arguments&) {
  const Json pids = {fork_sleeper([] {}), fork_sleeper([] { ::setsid(); }), fork_sleeper([] { ::setpgid(0, 0); }),
                     fork_sleeper([] { std::signal(SIGTERM, SIG_IGN); })};
  announce_ready({{"pids", pids}});
  sleep_for_ever();
}

int run_double_fork(const Arguments& arguments) {  // stay|leave keep|clear
  const pid_t daemon = double_fork(std::getenv("VIME_RUN_ID"), arguments.at(1) == "clear");
  announce_ready({{"pids", {daemon}}});
  if (arguments.at(0) == "leave") return 3;
  sleep_for_ever();
}

int run_print(const Arguments& arguments) {  // lines status
  for (int i = 1; i <= std::stoi(arguments.at(0)); ++i) std::printf("line %d\n", i);
  std::fflush(stdout);
  std::fprintf(stderr, "the end\n");
  return std::stoi(arguments.at(1));
}

int run_signal(const Arguments& arguments) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::signal(std::stoi(arguments.at(0)), SIG_DFL);
  std::raise(std::stoi(arguments.at(0)));
  return 1;
}

// Gives back each line with its own word before it; says its last word on stderr at the end of the input.
int run_echo(const Arguments& arguments) {
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::printf("%s %s", arguments.at(0).c_str(), line);
    std::fflush(stdout);
  }
  std::fprintf(stderr, "end of input\n");
  return 0;
}

int run_arguments(const Arguments& arguments) {
  for (const std::string& argument : arguments) std::printf("<%s>\n", argument.c_str());
  return 0;
}

int run_environment(const Arguments& arguments) {
  for (const std::string& name : arguments) {
    const char* value = std::getenv(name.c_str());
    std::printf("%s=%s\n", name.c_str(), value == nullptr ? "(unset)" : value);
  }
  char cwd[4096];
  std::printf("cwd=%s\n", ::getcwd(cwd, sizeof cwd));
  return 0;
}

void print_descriptors(const char* label) {
  DIR* folder = ::opendir("/proc/self/fd");
  std::string list;
  for (const dirent* item = ::readdir(folder); item != nullptr; item = ::readdir(folder)) {
    const int fd = std::atoi(item->d_name);
    if (item->d_name[0] == '.' || fd == ::dirfd(folder)) continue;
    char target[256];
    const ssize_t length = ::readlinkat(::dirfd(folder), item->d_name, target, sizeof target);
    list += " " + std::string(item->d_name) + (length > 0 && target[0] == 'p' ? ":pipe" : "");
  }
  ::closedir(folder);
  std::printf("%s%s\n", label, list.c_str());
  std::fflush(stdout);
}

int run_descriptors(const Arguments&) {
  print_descriptors("before:");
  announce_ready({{"port", 4711}});
  const char* left = std::getenv("VIME_READY_FD");
  std::printf("VIME_READY_FD is %s\n", left == nullptr ? "unset" : left);
  print_descriptors("after:");
  return 0;
}

int run_say(const Arguments& arguments) {  // any text on the ready pipe
  const int fd = std::atoi(std::getenv("VIME_READY_FD"));
  if (::write(fd, arguments.at(0).data(), arguments.at(0).size()) < 0) return 1;
  ::close(fd);
  sleep_for_ever();
}

int run_title(const Arguments& arguments) {  // beginning length
  std::string title = arguments.at(0);
  title.resize(static_cast<size_t>(std::stoi(arguments.at(1))), 'x');
  set_title(title);
  const char* kept = std::getenv("VIME_KEPT");
  announce_ready({{"kept", kept == nullptr ? "(unset)" : kept}});
  sleep_for_ever();
}

// Runs after all static destructors of the program.
bool says_goodbye = false;
[[gnu::destructor]] void say_goodbye() {
  if (!says_goodbye) return;
  const char* kept = std::getenv("VIME_KEPT");
  const std::string line = std::string("goodbye ") + (kept == nullptr ? "(unset)" : kept) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(1, line.data(), line.size());
}

int run_goodbye(const Arguments&) {
  set_title("vime trainer");
  says_goodbye = true;
  return 0;
}

int run_signal_state(const Arguments&) {
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  int blocked = 0, ignored = 0;
  for (int signal = 1; signal < 32; ++signal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    blocked += ::sigismember(&mask, signal) == 1;
    ignored += action.sa_handler == SIG_IGN;
  }
  std::printf("blocked %d ignored %d\n", blocked, ignored);
  return 0;
}

int run_interrupts(const Arguments&) {
  watch_interrupts();
  std::printf("watching\n");
  std::fflush(stdout);
  pollfd polled{interrupt_fd(), POLLIN, 0};
  while (::poll(&polled, 1, -1) < 1) {
  }
  std::printf("interrupted=%d\n", interrupted() ? 1 : 0);
  std::fflush(stdout);
  sleep_for_ever();
}

int run_orphan(const Arguments&) {  // a child that asks for death with this process, which then waits to be killed
  const pid_t parent = ::getpid();
  const pid_t child = fork_sleeper([parent] {
    if (!die_with_parent(parent)) ::_exit(1);
  });
  std::printf("%d\n", child);
  std::fflush(stdout);
  sleep_for_ever();
}

// DIR RUN_ID plain|watch GRACE_MS exec|fork: starts children of every kind, says "up", and waits for its end.
int run_driver(const Arguments& arguments) {
  const bool watches = arguments.at(2) == "watch";
  if (watches) watch_interrupts();
  Agent agent(own_binary(), arguments.at(1), {arguments.at(4) == "fork"});
  const std::map<std::string, Arguments> children{{"workers", {"fork-grandchildren"}},
                                                  {"daemon", {"double-fork", "stay", "keep"}},
                                                  {"hidden", {"double-fork", "stay", "clear"}},
                                                  {"stubborn", {"ignore-term"}}};
  for (const auto& [role, mode] : children) {
    Command command;
    command.role = role;
    command.argv = {own_binary()};
    command.argv.insert(command.argv.end(), mode.begin(), mode.end());
    command.log_path = arguments.at(0) + "/" + role + ".log";
    agent.start(command);
  }
  size_t ready = 0;
  while (ready < children.size()) {
    const auto event = agent.next_event(std::chrono::seconds(20));
    if (!event || event->kind == Event::Kind::failed || event->kind == Event::Kind::exited) return 1;
    ready += event->kind == Event::Kind::ready;
  }
  std::printf("up %d\n", agent.pid());
  std::fflush(stdout);
  if (!watches) sleep_for_ever();
  pollfd polled{interrupt_fd(), POLLIN, 0};
  while (::poll(&polled, 1, -1) < 1) {
  }
  std::printf("finishing\n");
  std::fflush(stdout);
  agent.shutdown(std::chrono::milliseconds(std::stoi(arguments.at(3))));
  return 130;
}

const std::map<std::string, int (*)(const Arguments&)> kModes{
    {"agent", run_agent},
    {"witness", run_witness},
    {"sleep", run_sleep},
    {"daemon", run_daemon},
    {"exec", run_exec},
    {"ignore-term", run_ignore_term},
    {"fork-grandchildren", run_fork_grandchildren},
    {"double-fork", run_double_fork},
    {"print", run_print},
    {"signal", run_signal},
    {"echo", run_echo},
    {"arguments", run_arguments},
    {"environment", run_environment},
    {"descriptors", run_descriptors},
    {"say", run_say},
    {"title", run_title},
    {"goodbye", run_goodbye},
    {"signal-state", run_signal_state},
    {"interrupts", run_interrupts},
    {"orphan", run_orphan},
    {"driver", run_driver},
};

int run_mode(int argc, char** argv) {
  ::alarm(120);
  const Arguments words(argv, argv + argc);
  remember_arguments(argc, argv);
  try {
    return kModes.at(words.at(1))(Arguments(words.begin() + 2, words.end()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "proc_test_child: %s\n", error.what());
    return 99;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_mode(argc, argv);
}
