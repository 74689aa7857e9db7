#include "proc/process.hpp"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace vime::proc {
namespace {

// The strings of argv and of the environment as the kernel laid them out: one block, arguments first. /proc/PID/cmdline
// shows the arguments' part, and goes on into the rest when the arguments' last byte is not 0.
struct ArgumentMemory {
  char* begin = nullptr;
  char* arguments_end = nullptr;
  char* end = nullptr;
};
ArgumentMemory argument_memory;

// The environment moved out of the way; environ points into it. Never freed: destructors and exit handlers that run
// after those of this file may still call getenv.
struct MovedEnvironment {
  std::vector<std::string> strings;
  std::vector<char*> pointers;
};
MovedEnvironment* moved_environment = nullptr;

std::atomic<int> interrupts{0};
std::atomic<int> interrupt_event{-1};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch lock-free atomics");

bool is_own(const std::string& entry) {
  return entry.compare(0, 5, "VIME_") == 0;
}

// environ becomes these entries, in memory of their own.
void move_environment(std::vector<std::string> entries) {
  if (moved_environment == nullptr) moved_environment = new MovedEnvironment;
  moved_environment->strings = std::move(entries);
  moved_environment->pointers.clear();
  for (std::string& entry : moved_environment->strings) moved_environment->pointers.push_back(entry.data());
  moved_environment->pointers.push_back(nullptr);
  environ = moved_environment->pointers.data();
}

// Shows the environment in the argument memory from `at` on. /proc/PID/environ has to tell by which run and by whom
// this process was started (the sweep after an end looks there), so vime's own variables come first.
void show_environment(char* at) {
  for (const bool own : {true, false}) {
    for (const std::string& entry : moved_environment->strings) {
      if (is_own(entry) != own || entry.size() + 1 > static_cast<size_t>(argument_memory.end - at)) continue;
      std::memcpy(at, entry.c_str(), entry.size() + 1);
      at += entry.size() + 1;
    }
  }
}

extern "C" void on_interrupt(int signal) {
  const int saved_errno = errno;
  // A closing terminal sends SIGHUP more than once; only a person or a supervisor repeats the other two.
  if (interrupts.exchange(1) != 0 && signal != SIGHUP) ::_exit(130);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(interrupt_event.load(), &one, sizeof one);
  errno = saved_errno;
}

}  // namespace

void remember_arguments(int argc, char** argv) {
  if (argc <= 0 || argv == nullptr || argument_memory.begin != nullptr) return;
  char* end = argv[0];
  for (int i = 0; i < argc && argv[i] == end; ++i) end = argv[i] + std::strlen(argv[i]) + 1;
  argument_memory = {argv[0], end, end};
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (*entry == end) end = *entry + std::strlen(*entry) + 1;
    entries.emplace_back(*entry);
  }
  argument_memory.end = end;
  move_environment(std::move(entries));
}

void set_title(const std::string& title) {
  ::prctl(PR_SET_NAME, title.substr(0, 15).c_str());
  const ArgumentMemory& memory = argument_memory;
  if (memory.begin == nullptr) return;
  const size_t room = static_cast<size_t>(memory.end - memory.begin);
  const size_t length = std::min(title.size(), room - 1);
  char* const title_end = memory.begin + length + 1;
  char* const cleared_end = std::max(title_end, memory.arguments_end);
  std::memset(memory.begin, 0, static_cast<size_t>(cleared_end - memory.begin));
  std::memcpy(memory.begin, title.data(), length);
  if (title_end <= memory.arguments_end) return;
  // The title has run into the environment.
  std::memset(title_end, 0, static_cast<size_t>(memory.end - title_end));
  show_environment(title_end);
}

std::vector<char*> take_command_line(const std::vector<std::string>& argv,
                                     const std::vector<std::string>& environment) {
  const ArgumentMemory& memory = argument_memory;
  if (memory.begin == nullptr || argv.empty()) return {};
  size_t argument_bytes = 0, own_bytes = 0;
  for (const std::string& argument : argv) argument_bytes += argument.size() + 1;
  for (const std::string& entry : environment) own_bytes += is_own(entry) ? entry.size() + 1 : 0;
  // Never before arguments_end, where the environment would show as arguments.
  const size_t environment_at = std::max(argument_bytes, static_cast<size_t>(memory.arguments_end - memory.begin));
  if (environment_at + own_bytes > static_cast<size_t>(memory.end - memory.begin)) return {};

  std::memset(memory.begin, 0, static_cast<size_t>(memory.end - memory.begin));
  std::vector<char*> words;
  char* at = memory.begin;
  for (const std::string& argument : argv) {
    std::memcpy(at, argument.c_str(), argument.size() + 1);
    words.push_back(at);
    at += argument.size() + 1;
  }
  words.push_back(nullptr);
  move_environment(environment);
  show_environment(memory.begin + environment_at);
  ::prctl(PR_SET_NAME, argv[0].substr(argv[0].rfind('/') + 1, 15).c_str());  // as exec does
  return words;
}

bool die_with_parent(int expected_parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw_errno(ErrorKind::internal, "ask for SIGKILL at the parent's end");
  return ::getppid() == expected_parent;
}

std::string own_binary() {
  std::vector<char> path(4096);
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length < 0) throw_errno(ErrorKind::refused, "read /proc/self/exe");
  return std::string(path.data(), static_cast<size_t>(length));
}

void watch_interrupts() {
  if (interrupt_event.load() >= 0) return;
  const int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw_errno(ErrorKind::exhausted, "make the interrupts' descriptor");
  interrupt_event.store(event);
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // waits notice through interrupt_fd; reads and writes of libraries go on
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    if (::sigaction(signal, &action, nullptr) != 0) throw_errno(ErrorKind::internal, "watch for interrupts");
  }
}

bool interrupted() {
  return interrupts.load() != 0;
}

int interrupt_fd() {
  return interrupt_event.load();
}

}  // namespace vime::proc
