// Which processes go when one child ends, and which stay.
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.hpp"
#include "fixture.hpp"
#include "proc/process_table.hpp"

namespace vime::proc::test {

using Kind = Event::Kind;

namespace {

void check_all(const std::vector<pid_t>& pids, bool alive) {
  for (const pid_t pid : pids) {
    CAPTURE(pid);
    CHECK(is_alive(pid) == alive);
  }
}

}  // namespace

TEST_CASE("grandchildren, setsid and double fork included, are gone when a stop is reported, and other children stay") {
  Bench bench;
  const auto others = announced_pids(bench.start_ready("other", {"fork-grandchildren"}));
  const auto other_daemon = announced_pids(bench.start_ready("other-daemon", {"double-fork", "stay", "keep"}));
  const auto workers = announced_pids(bench.start_ready("workers", {"fork-grandchildren"}));
  const auto daemon = announced_pids(bench.start_ready("daemon", {"double-fork", "stay", "keep"}));
  REQUIRE(workers.size() == 4);
  check_all(workers, true);
  check_all(daemon, true);

  bench.agent.stop("workers", milliseconds(300));
  CHECK(bench.expect(Kind::exited, "workers").expected);
  check_all(workers, false);
  check_all(daemon, true);
  bench.agent.stop("daemon", milliseconds(300));
  bench.expect(Kind::exited, "daemon");
  check_all(daemon, false);
  check_all(others, true);
  check_all(other_daemon, true);
}

TEST_CASE("a child that dies by itself takes its grandchildren and daemons along, and no other child's") {
  Bench bench;
  const auto other_daemon = announced_pids(bench.start_ready("other-daemon", {"double-fork", "stay", "keep"}));
  const auto hidden = announced_pids(bench.start_ready("other-hidden", {"double-fork", "stay", "clear"}));
  const Event ready = bench.start_ready("workers", {"fork-grandchildren"});
  ::kill(ready.pid, SIGKILL);
  CHECK_FALSE(bench.expect(Kind::exited, "workers").expected);
  check_all(announced_pids(ready), false);

  const auto daemon = announced_pids(bench.start_ready("daemon", {"double-fork", "leave", "keep"}));
  CHECK(bench.expect(Kind::exited, "daemon").code == 3);
  check_all(daemon, false);
  check_all(other_daemon, true);
  check_all(hidden, true);
}

TEST_CASE("a daemon that cleared its environment is nobody's while others live, and goes with the last child") {
  Bench bench;
  const auto hidden = announced_pids(bench.start_ready("hidden", {"double-fork", "stay", "clear"}));
  const auto other = bench.start_ready("other", {"sleep"});
  bench.agent.stop("hidden", milliseconds(1000));
  bench.expect(Kind::exited, "hidden");
  check_all(hidden, true);
  CHECK(is_alive(other.pid));
  bench.agent.stop("other", milliseconds(1000));
  bench.expect(Kind::exited, "other");
  check_all(hidden, false);
}

TEST_CASE("a shutdown leaves nothing of the run") {
  Bench bench;
  bench.start_ready("workers", {"fork-grandchildren"});
  bench.start_ready("daemon", {"double-fork", "stay", "keep"});
  bench.start_ready("hidden", {"double-fork", "stay", "clear"});
  bench.start_ready("stubborn", {"ignore-term"});
  REQUIRE(processes_with(bench.run_id).size() == 1 + 5 + 2 + 2 + 1);
  bench.agent.shutdown(milliseconds(300));
  CHECK(processes_with(bench.run_id).empty());
}

TEST_CASE("a signal meant for a process does not reach another that got its number") {
  const Outsider sleeper({"sleeper", "sleep"});
  auto entry = read_process(sleeper.pid());
  REQUIRE(entry);
  CHECK(entry->parent == ::getpid());
  CHECK(entry->living);
  ProcessEntry earlier = *entry;
  earlier.start_time -= 1;
  CHECK_FALSE(signal_process(earlier, SIGKILL));
  CHECK(is_alive(sleeper.pid()));
  CHECK(signal_process(*entry, SIGKILL));
  CHECK(eventually([&] { return !is_alive(sleeper.pid()); }));
  // A zombie is no living process though its number is still taken.
  entry = read_process(sleeper.pid());
  REQUIRE(entry);
  CHECK_FALSE(entry->living);
}

TEST_CASE("a process keeps its environment's mark in the middle of exec, where /proc shows nothing of it") {
  const Outsider changing({"changing", "exec"});
  for (int i = 0; i < 30000; ++i) REQUIRE(environment_has(changing.pid(), "PATH=/usr/bin", false));
}

TEST_CASE("a process without any environment, and one that has ended, are not waited for") {
  Bench bench;
  const auto daemon = announced_pids(bench.start_ready("hidden", {"double-fork", "stay", "clear"}));
  const auto begin = SteadyClock::now();
  for (int i = 0; i < 100; ++i) CHECK_FALSE(environment_has(daemon.at(0), "PATH=", false));
  CHECK_FALSE(environment_has(2, "PATH=", false));  // of the kernel
  pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  REQUIRE(eventually([&] { return !is_alive(ended); }));
  CHECK_FALSE(environment_has(ended, "PATH=", false));
  ::waitpid(ended, nullptr, 0);
  CHECK_FALSE(environment_has(ended, "PATH=", false));
  CHECK(seconds_since(begin) < 60.0);  // and not the two seconds of each
}

TEST_CASE("descendants are found through any number of generations, zombies left out") {
  const auto entry = [](pid_t pid, pid_t parent, bool living) {
    ProcessEntry made;
    made.pid = pid;
    made.parent = parent;
    made.living = living;
    return made;
  };
  const std::vector<ProcessEntry> table{entry(10, 1, true),  entry(11, 10, true), entry(12, 11, false),
                                        entry(13, 12, true), entry(20, 1, true),  entry(21, 20, true)};
  std::vector<pid_t> found;
  for (const ProcessEntry& each : living_descendants(table, 10)) found.push_back(each.pid);
  CHECK(found == std::vector<pid_t>{11, 13});
}

}  // namespace vime::proc::test
