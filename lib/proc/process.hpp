// What a process does to itself: its title, dying with its parent, and the user's interrupts.
// For the main thread, early; interrupted() and interrupt_fd() from any thread. Nothing blocks.
#pragma once

#include <string>
#include <vector>

namespace vime::proc {

// What `ps` shows. remember_arguments comes first in main, with main's arguments, and moves the environment elsewhere.
// set_title overwrites argv's strings, so parse them before; without remember_arguments it only sets the thread's name.
// A title begins "vime trainer", "vime engine" or "vime agent" and carries the run id.
void remember_arguments(int argc, char** argv);
void set_title(const std::string& title);

// For a forked child that goes on as another command without exec: `argv` and `environment` ("NAME=value") become those
// of this process, and ps and /proc/PID/environ show them, vime's own variables before others where there is little
// room. Returns argv as main gets it, in the memory that titles are written to. Empty, with nothing changed, when that
// memory is too small or remember_arguments was not called. Needs a process with one thread.
std::vector<char*> take_command_line(const std::vector<std::string>& argv, const std::vector<std::string>& environment);

// SIGKILL when the parent process goes. Must run in the child, called by a thread that lives as long as the parent
// (the signal fires when the thread that forked ends). Returns false when the parent (expected_parent) has gone
// already.
bool die_with_parent(int expected_parent);

// Absolute path of the running binary.
std::string own_binary();

// SIGINT and SIGTERM: the first sets the flag, the second leaves the process at once with status 130. SIGHUP counts as
// the first (it never is a second: terminals repeat it), and stays ignored where it was (nohup).
void watch_interrupts();
bool interrupted();
// A descriptor that becomes readable at the first interrupt; for poll.
int interrupt_fd();

}  // namespace vime::proc
