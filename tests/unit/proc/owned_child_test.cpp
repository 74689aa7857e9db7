#include "proc/owned_child.hpp"

#include <unistd.h>

#include <csignal>
#include <utility>

#include "fixture.hpp"

namespace vime::proc::test {
namespace {

// Ends by itself after two minutes, so that a failing test leaves nothing behind.
pid_t fork_sleeper(bool stopped = false) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(120);
    if (stopped) ::raise(SIGSTOP);
    for (;;) ::pause();
  }
  return pid;
}

pid_t fork_exit(int status) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(status);
  return pid;
}

}  // namespace

TEST_CASE("an owned child goes with its owner, however that goes, and leaves no zombie") {
  pid_t pid = 0;
  const auto fail = [&](bool stopped) {
    const OwnedChild child(pid = fork_sleeper(stopped), "a sleeper");
    throw 1;
  };
  for (const bool stopped : {false, true}) {
    CHECK_THROWS(fail(stopped));
    CHECK(::kill(pid, 0) != 0);
  }
  OwnedChild moved(fork_sleeper(), "first");
  const pid_t first = moved.pid();
  moved = OwnedChild(fork_sleeper(), "second");
  CHECK(::kill(first, 0) != 0);
  CHECK(is_alive(moved.pid()));
}

TEST_CASE("how an owned child ended is told, and one that does not end is killed after the grace") {
  OwnedChild leaves(fork_exit(3), "leaves");
  CHECK(leaves.end(milliseconds(20'000)) == "exited with status 3");
  CHECK(leaves.end(milliseconds(20'000)).empty());
  OwnedChild stays(fork_sleeper(), "stays");
  CHECK(stays.end(milliseconds(20)) == "was killed by signal 9 (SIGKILL)");
  CHECK(stays.pid() == 0);
}

}  // namespace vime::proc::test
