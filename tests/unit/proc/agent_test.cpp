#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "fixture.hpp"

namespace vime::proc::test {
namespace {

using Kind = Event::Kind;

bool readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("a child is reported as started, as ready with what it announced, and as exited") {
  Bench bench;
  const Event started = bench.start("engine-0", {"sleep"});
  const Event ready = bench.expect(Kind::ready, "engine-0");
  CHECK(ready.info.at("pid").get<int>() == started.pid);
  CHECK(ready.pid == started.pid);
  CHECK(is_alive(started.pid));
  bench.agent.stop("engine-0", milliseconds(5000));
  const Event exited = bench.expect(Kind::exited, "engine-0");
  CHECK(exited.pid == started.pid);
  CHECK(exited.signal == SIGTERM);
  CHECK_FALSE(exited.code);
  CHECK(exited.expected);
  CHECK_FALSE(is_alive(started.pid));
}

TEST_CASE("an unexpected exit carries the status, the log's path and its last 20 lines") {
  Bench bench;
  const Event exited = bench.run("trainer-0", {"print", "30", "3"});
  CHECK(exited.code == 3);
  CHECK_FALSE(exited.signal);
  CHECK_FALSE(exited.expected);
  CHECK(exited.log_path == bench.log("trainer-0"));
  REQUIRE(exited.log_tail.size() == 20);
  CHECK(exited.log_tail.front() == "line 12");
  CHECK(exited.log_tail[18] == "line 30");
  CHECK(exited.log_tail.back() == "the end");
  CHECK(describe_exit(exited) == "exited with status 3");
}

TEST_CASE("a child killed by a signal is reported with the signal") {
  Bench bench;
  const Event aborted = bench.run("trainer-0", {"signal", std::to_string(SIGABRT)});
  CHECK(aborted.signal == SIGABRT);
  CHECK_FALSE(aborted.code);
  CHECK_FALSE(aborted.expected);
  const Event ready = bench.start_ready("trainer-1", {"sleep"});
  ::kill(ready.pid, SIGKILL);
  const Event killed = bench.expect(Kind::exited, "trainer-1");
  CHECK(describe_exit(killed) == "was killed by signal 9 (SIGKILL)");
  CHECK_FALSE(killed.expected);
}

TEST_CASE("what cannot be started is reported with the reason, and its role is free again") {
  Bench bench;
  Command command = bench.command("engine-0", {});
  const auto failure = [&] {
    bench.agent.start(command);
    return bench.expect(Kind::failed, "engine-0").error;
  };
  command.argv = {"/nowhere/vime"};
  CHECK(failure() == "exec \"/nowhere/vime\": No such file or directory");
  command.argv = {"no-such-program-of-vime"};
  CHECK(failure().find("exec \"no-such-program-of-vime\": No such file or directory") == 0);
  command.argv = {bench.folder.path().string()};
  CHECK(failure() == "exec \"" + bench.folder.path().string() + "\": Permission denied");
  command.argv = {kStandIn, "sleep"};
  command.cwd = "/nowhere";
  CHECK(failure() == "change to folder \"/nowhere\": No such file or directory");
  command.cwd = "";
  command.log_path = "/nowhere/engine.log";
  CHECK(failure() == "open log \"/nowhere/engine.log\": No such file or directory");
  bench.start_ready("engine-0", {"sleep"});
}

TEST_CASE("an announcement that is not JSON fails the child and ends it") {
  Bench bench;
  const Event started = bench.start("engine-0", {"say", "port 4711\n"});
  const Event failed = bench.expect(Kind::failed, "engine-0");
  CHECK(failed.error == "what \"engine-0\" announced: not JSON: \"port 4711\"");
  CHECK_FALSE(is_alive(started.pid));
}

TEST_CASE("a child that ignores TERM is killed after the grace and not before") {
  Bench bench;
  const Event ready = bench.start_ready("engine-0", {"ignore-term"});
  const auto asked = SteadyClock::now();
  bench.agent.stop("engine-0", milliseconds(400));
  const Event exited = bench.expect(Kind::exited, "engine-0");
  const double seconds = seconds_since(asked);
  CHECK(exited.signal == SIGKILL);
  CHECK(exited.expected);
  CHECK(seconds >= 0.4);
  CHECK(seconds < 3.0);
  CHECK_FALSE(is_alive(ready.pid));
}

TEST_CASE("a child that obeys TERM is not kept waiting for the grace") {
  Bench bench;
  bench.start_ready("engine-0", {"sleep"});
  const auto asked = SteadyClock::now();
  bench.agent.stop("engine-0", milliseconds(60000));
  bench.expect(Kind::exited, "engine-0");
  CHECK(seconds_since(asked) < 5.0);
}

TEST_CASE("a role that lives cannot be started again, one that has ended can") {
  Bench bench;
  bench.start_ready("engine-0", {"sleep"});
  CHECK(failure_of([&] {
          bench.agent.start(bench.command("engine-0", {"sleep"}));
        }).find("role \"engine-0\" is taken") != std::string::npos);
  bench.agent.stop("engine-0", milliseconds(5000));
  bench.expect(Kind::exited, "engine-0");
  bench.start_ready("engine-0", {"sleep"});
  bench.agent.stop("engine-7", milliseconds(5000));  // nobody of that name: no event, no error
  bench.agent.stop("engine-0", milliseconds(5000));
  bench.expect(Kind::exited, "engine-0");
}

TEST_CASE("the event descriptor is readable exactly while an event waits") {
  Bench bench;
  CHECK_FALSE(readable(bench.agent.event_fd()));
  CHECK_FALSE(bench.agent.next_event(milliseconds(0)));
  bench.agent.start(bench.command("trainer-0", {"print", "1", "0"}));
  REQUIRE(eventually([&] { return readable(bench.agent.event_fd()); }));
  // Both events in one read: the second is in memory then, and must show all the same.
  REQUIRE(eventually([&] { return processes_with(bench.run_id).size() == 1; }));
  bench.expect(Kind::started, "trainer-0");
  REQUIRE(eventually([&] { return readable(bench.agent.event_fd()); }));
  bench.expect(Kind::exited, "trainer-0");
  CHECK_FALSE(readable(bench.agent.event_fd()));
}

TEST_CASE("after a shutdown the queued ends are told as expected, then nothing") {
  Bench bench;
  const Event ready = bench.start_ready("engine-0", {"sleep"});
  const pid_t agent = bench.agent.pid();
  bench.agent.shutdown(milliseconds(3000));
  CHECK_FALSE(is_alive(ready.pid));
  CHECK_FALSE(is_alive(agent));
  CHECK(processes_with(bench.run_id).empty());
  bench.agent.shutdown(milliseconds(3000));
  CHECK(readable(bench.agent.event_fd()));
  const Event exited = bench.expect(Kind::exited, "engine-0");
  CHECK(exited.expected);
  CHECK_FALSE(bench.agent.next_event(milliseconds(60000)));
  CHECK_FALSE(readable(bench.agent.event_fd()));
  CHECK(failure_of([&] { bench.agent.start(bench.command("engine-0", {"sleep"})); }) != "");
}

TEST_CASE("an agent that does not answer is killed with all it started") {
  Bench bench;
  bench.start_ready("engine-0", {"fork-grandchildren"});
  REQUIRE(::kill(bench.agent.pid(), SIGSTOP) == 0);
  bench.agent.shutdown(milliseconds(0));
  CHECK(processes_with(bench.run_id).empty());
}

TEST_CASE("a vime binary that is not there is an error that names it") {
  CHECK(failure_of([] { Agent agent("/nowhere/vime", "r1"); }) ==
        "start the agent: exec \"/nowhere/vime\": No such file or directory");
}

TEST_CASE("neither driver nor agent keeps descriptors or zombies of children that ended") {
  const size_t before = open_descriptors(0);
  {
    Bench bench;
    bench.run("trainer-0", {"print", "1", "0"});
    const size_t agent_before = open_descriptors(bench.agent.pid());
    const size_t driver_before = open_descriptors(0);
    for (int i = 0; i < 20; ++i) bench.run("trainer-0", {"print", "1", "0"});
    bench.start_ready("daemon", {"double-fork", "leave", "keep"});
    bench.expect(Event::Kind::exited, "daemon");
    CHECK(open_descriptors(bench.agent.pid()) == agent_before);
    CHECK(open_descriptors(0) == driver_before);
    CHECK(zombies_of(bench.agent.pid()).empty());
  }
  CHECK(open_descriptors(0) == before);
  CHECK(zombies_of(::getpid()).empty());
}

}  // namespace vime::proc::test
