// The processes of this machine as /proc shows them, and signals that never reach a process that merely took over a
// number. A table is a snapshot: processes come and go while it is read, so whoever ends processes reads it again until
// nothing is left. Nothing here blocks except on reading /proc; any thread may call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vime::proc {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  uint64_t start_time = 0;  // clock ticks since boot: with the pid it names one process for good
  bool living = false;      // false for a zombie
};

std::optional<ProcessEntry> read_process(pid_t pid);
std::vector<ProcessEntry> read_process_table();

// The living processes of the table that have `root` among their ancestors; `root` itself is not one.
std::vector<ProcessEntry> living_descendants(const std::vector<ProcessEntry>& table, pid_t root);

// Whether the process was started with an environment entry that begins with `prefix` ("NAME=value"); `whole` asks for
// an equal entry. False when the environment may not be read. Waits up to 2 s for a process in the middle of exec.
bool environment_has(pid_t pid, const std::string& prefix, bool whole);

// Sends the signal when `entry` is still the same process. False when it is gone or may not be signalled.
bool signal_process(const ProcessEntry& entry, int signal);

}  // namespace vime::proc
