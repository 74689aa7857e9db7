// What a process does to itself: its title, dying with its parent, and the user's interrupts.
#pragma once

#include <string>

namespace vime::proc {

// What `ps` shows. Call once, early in main, with main's arguments (their memory is overwritten).
void remember_arguments(int argc, char** argv);
void set_title(const std::string& title);

// SIGKILL when the parent process goes. Must run in the child, called by a thread that lives as long as the parent
// (the signal fires when the thread that forked ends). Returns false when the parent (expected_parent) has gone already.
bool die_with_parent(int expected_parent);

// Absolute path of the running binary.
std::string own_binary();

// SIGINT and SIGTERM: the first sets the flag, the second leaves the process at once with status 130. SIGHUP counts as the first.
void watch_interrupts();
bool interrupted();
// A descriptor that becomes readable at the first interrupt; for poll.
int interrupt_fd();

}  // namespace vime::proc
