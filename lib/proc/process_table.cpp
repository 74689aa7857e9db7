#include "proc/process_table.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/deadline.hpp"
#include "base/files.hpp"
#include "base/strings.hpp"

namespace vime::proc {
namespace {

// base's read_file throws for a file that is gone; here a process that ended meanwhile is an ordinary outcome, as is
// one that may not be looked into. Nothing for a file that cannot be opened.
std::optional<std::string> read_proc_file(pid_t pid, const char* name) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/%s", static_cast<int>(pid), name);
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  std::string content;
  if (!fd) return std::nullopt;
  char buffer[8192];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return content;
    content.append(buffer, static_cast<size_t>(got));
  }
}

// The words of /proc/PID/stat from the state on; "" when the process is gone. The name before them stands in
// parentheses and may hold any byte, parentheses included; the last one closes it.
std::string stat_after_name(pid_t pid) {
  const std::string stat = read_proc_file(pid, "stat").value_or("");
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? "" : stat.substr(name_end + 2);
}

// How long a process may be in the middle of exec: on a loaded machine it waits there for a processor.
constexpr std::chrono::milliseconds kExecTimeout{2000};

// A process has its environment, be it an empty one, unless it is between its old and its new program, where /proc
// shows none; kernel threads and the dead never have one. By the words of proc(5)'s stat, for processes whose environ
// may be read.
bool is_in_exec(pid_t pid) {
  constexpr unsigned long kKernelThread = 0x00200000;  // PF_KTHREAD
  constexpr size_t kState = 0, kFlags = 6, kEnvStart = 47, kEnvEnd = 48;
  const std::vector<std::string> words = split(stat_after_name(pid), ' ');
  if (words.size() <= kEnvEnd || words[kState] == "Z" || words[kState] == "X") return false;
  const auto number = [&](size_t at) { return std::strtoul(words[at].c_str(), nullptr, 10); };
  if ((number(kFlags) & kKernelThread) != 0) return false;
  return number(kEnvEnd) == 0 || number(kEnvStart) != number(kEnvEnd);  // the latter: no longer
}

}  // namespace

std::optional<ProcessEntry> read_process(pid_t pid) {
  const std::string stat = stat_after_name(pid);
  ProcessEntry entry;
  entry.pid = pid;
  char state = 0;
  long threads = 0;
  unsigned long long start_time = 0;
  const int fields =
      std::sscanf(stat.c_str(), "%c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu", &state,
                  &entry.parent, &entry.group, &entry.session, &threads, &start_time);
  if (fields != 6) return std::nullopt;
  entry.start_time = start_time;
  // A process whose first thread has ended shows as a zombie while its other threads go on.
  entry.living = (state != 'Z' && state != 'X') || threads > 1;
  return entry;
}

std::vector<ProcessEntry> read_process_table() {
  std::vector<ProcessEntry> table;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return table;
  while (const dirent* item = ::readdir(folder.get())) {
    char* end = nullptr;
    const long pid = std::strtol(item->d_name, &end, 10);
    if (end == item->d_name || *end != '\0' || pid <= 0) continue;
    if (auto entry = read_process(static_cast<pid_t>(pid))) table.push_back(*entry);
  }
  return table;
}

std::vector<ProcessEntry> living_descendants(const std::vector<ProcessEntry>& table, pid_t root) {
  std::unordered_map<pid_t, std::vector<const ProcessEntry*>> children;
  for (const ProcessEntry& entry : table) children[entry.parent].push_back(&entry);
  std::vector<ProcessEntry> found;
  std::set<pid_t> seen{root};  // numbers recycled between two reads could close a circle
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    for (const ProcessEntry* entry : children[parent]) {
      if (!seen.insert(entry->pid).second) continue;
      open.push_back(entry->pid);
      if (entry->living) found.push_back(*entry);
    }
  }
  return found;
}

bool environment_has(pid_t pid, const std::string& prefix, bool whole) {
  std::optional<std::string> shown = read_proc_file(pid, "environ");
  for (const Deadline deadline(kExecTimeout); shown && shown->empty() && is_in_exec(pid) && !deadline.passed();) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    shown = read_proc_file(pid, "environ");
  }
  const std::string environment = shown.value_or("");
  for (size_t at = 0; at < environment.size();) {
    size_t end = environment.find('\0', at);
    if (end == std::string::npos) end = environment.size();
    if (environment.compare(at, prefix.size(), prefix) == 0 && (!whole || end - at == prefix.size())) return true;
    at = end + 1;
  }
  return false;
}

bool signal_process(const ProcessEntry& entry, int signal) {
  // The descriptor is tied to one process, so that comparing the start time after opening it leaves no gap.
  UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, entry.pid, 0)));
  if (!handle && errno == ESRCH) return false;
  const auto now = read_process(entry.pid);
  if (!now || now->start_time != entry.start_time) return false;
  if (handle) return ::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0) == 0;
  return ::kill(entry.pid, signal) == 0;  // a kernel or a container without pidfd
}

}  // namespace vime::proc
