#include "proc/process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.hpp"
#include "fixture.hpp"

namespace vime::proc::test {

using Kind = Event::Kind;

namespace {

std::string name_of(pid_t pid) {
  return read_file("/proc/" + std::to_string(pid) + "/comm");
}

}  // namespace

TEST_CASE("a title replaces the command line, short or longer than the arguments and the environment") {
  Bench bench;
  for (const size_t length : {size_t(60), size_t(400), size_t(1500)}) {
    CAPTURE(length);
    const std::string beginning = "vime trainer " + bench.run_id + " ";
    const std::string title = beginning + std::string(length - beginning.size(), 'x');
    Command command = bench.command("trainer-0", {"title", beginning, std::to_string(length)});
    command.env = {{"VIME_KEPT", "still here"}, {"PADDING", std::string(2500, 'p')}};
    bench.agent.start(command);
    bench.expect(Kind::started, "trainer-0");
    const Event ready = bench.expect(Kind::ready, "trainer-0");
    CHECK(command_line(ready.pid) == title);
    CHECK(name_of(ready.pid) == "vime trainer " + bench.run_id.substr(0, 2) + "\n");
    CHECK(ready.info.at("kept") == "still here");
    CHECK_FALSE(processes_with("VIME_RUN_ID=" + bench.run_id).empty());
    bench.agent.stop("trainer-0", milliseconds(2000));
    bench.expect(Kind::exited, "trainer-0");
  }
}

TEST_CASE("the environment can be read until the process has ended, after static destructors too") {
  Bench bench(AgentOptions{});  // a forked child ends without them
  Command command = bench.command("trainer-0", {"goodbye"});
  command.env = {{"VIME_KEPT", "still here"}};
  bench.agent.start(command);
  bench.expect(Kind::started, "trainer-0");
  const Event exited = bench.expect(Kind::exited, "trainer-0");
  CHECK(exited.code == 0);
  CHECK(exited.log_tail == std::vector<std::string>{"goodbye still here"});
}

TEST_CASE("the agent's title carries the run id") {
  Bench bench;
  CHECK(eventually([&] { return command_line(bench.agent.pid()) == "vime agent " + bench.run_id; }));
}

TEST_CASE("the agent is in a session of its own, where a terminal's Ctrl-C does not reach") {
  Bench bench;
  CHECK(::getsid(bench.agent.pid()) == bench.agent.pid());
  CHECK(::getsid(0) != bench.agent.pid());
}

TEST_CASE("the first interrupt is noticed through the descriptor, the second leaves at once with status 130") {
  for (const int second : {SIGINT, SIGTERM}) {
    CAPTURE(second);
    Outsider program({"vime run", "interrupts"});
    REQUIRE(program.read_line() == "watching");
    program.signal(second == SIGINT ? SIGTERM : SIGINT);
    CHECK(program.read_line() == "interrupted=1");
    CHECK(is_alive(program.pid()));
    program.signal(second);
    const auto status = program.wait(milliseconds(5000));
    REQUIRE(status);
    CHECK(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == 130);
  }
}

TEST_CASE("a terminal that hangs up twice counts as one interrupt") {
  Outsider program({"vime run", "interrupts"});
  REQUIRE(program.read_line() == "watching");
  program.signal(SIGHUP);
  CHECK(program.read_line() == "interrupted=1");
  program.signal(SIGHUP);
  CHECK_FALSE(program.wait(milliseconds(100)));
  program.signal(SIGINT);
  const auto status = program.wait(milliseconds(5000));
  REQUIRE(status);
  CHECK(WEXITSTATUS(*status) == 130);
}

TEST_CASE("a child that asked for it dies with its parent") {
  Outsider parent({"parent", "orphan"});
  const pid_t child = std::stoi(parent.read_line());
  CHECK(is_alive(child));
  parent.signal(SIGKILL);
  REQUIRE(parent.wait(milliseconds(5000)));
  CHECK(eventually([&] { return !is_alive(child); }));
}

TEST_CASE("asking to die with a parent that is another process says so") {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(die_with_parent(1 << 30) ? 1 : 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the path of the own binary is absolute and names this test") {
  CHECK(own_binary() == fs::canonical("/proc/self/exe").string());
  CHECK(fs::path(own_binary()).filename() == "proc_tests");
}

}  // namespace vime::proc::test
