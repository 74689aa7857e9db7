// What a child finds when it starts: arguments, environment, folder, descriptors, signals, log.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "fixture.hpp"

namespace vime::proc::test {

using Kind = Event::Kind;

TEST_CASE("arguments reach the child as they are, no shell between") {
  Bench bench;
  const Event exited = bench.run("reward", {"arguments", "a b", "", "$HOME", "\"quoted\"", "; exit 9", "*", "ä\n2"});
  CHECK(exited.code == 0);
  CHECK(exited.log_tail ==
        std::vector<std::string>{"<a b>", "<>", "<$HOME>", "<\"quoted\">", "<; exit 9>", "<*>", "<ä", "2>"});
}

TEST_CASE("a program without a slash is looked up in the child's own PATH") {
  Bench bench;
  Command command = bench.command("reward", {"arguments", "found"});
  command.argv[0] = "proc_test_child";
  command.env["PATH"] = "/nowhere:" + std::string(VIME_BIN_DIR);
  bench.agent.start(command);
  bench.expect(Kind::started, "reward");
  CHECK(bench.expect(Kind::exited, "reward").log_tail == std::vector<std::string>{"<found>"});
}

TEST_CASE("the child gets the agent's environment, the command's on top, the run id and the folder") {
  ::setenv("VIME_TEST_INHERITED", "kept", 1);
  ::setenv("VIME_TEST_REPLACED", "old", 1);
  Bench bench;
  Command command = bench.command(
      "trainer-0", {"environment", "VIME_TEST_INHERITED", "VIME_TEST_REPLACED", "VIME_TEST_ADDED", "VIME_RUN_ID"});
  command.env = {{"VIME_TEST_REPLACED", "new"}, {"VIME_TEST_ADDED", "x=y z"}};
  command.cwd = bench.folder.path().string();
  bench.agent.start(command);
  bench.expect(Kind::started, "trainer-0");
  const Event exited = bench.expect(Kind::exited, "trainer-0");
  CHECK(exited.log_tail == std::vector<std::string>{"VIME_TEST_INHERITED=kept", "VIME_TEST_REPLACED=new",
                                                    "VIME_TEST_ADDED=x=y z", "VIME_RUN_ID=" + bench.run_id,
                                                    "cwd=" + fs::canonical(command.cwd).string()});
  ::unsetenv("VIME_TEST_INHERITED");
  ::unsetenv("VIME_TEST_REPLACED");
}

TEST_CASE(
    "a child has only stdin, stdout, stderr and its ready pipe, and nothing of the pipe once it announced itself") {
  const UniqueFd leaky(::open("/dev/null", O_RDONLY));  // the driver forgot O_CLOEXEC
  Bench bench;
  bench.start_ready("engine-1", {"sleep"});  // its pipes must not show in the other child
  bench.start("engine-0", {"descriptors"});
  const Event ready = bench.expect(Kind::ready, "engine-0");
  CHECK(ready.info.at("port") == 4711);
  const Event exited = bench.expect(Kind::exited, "engine-0");
  REQUIRE(exited.log_tail.size() == 3);
  const std::vector<std::string> before = split(exited.log_tail[0], ' ');
  REQUIRE(before.size() == 5);
  CHECK(before[1] == "0");
  CHECK(before[2] == "1");
  CHECK(before[3] == "2");
  CHECK(before[4].find(":pipe") != std::string::npos);
  CHECK(exited.log_tail[1] == "VIME_READY_FD is unset");
  CHECK(exited.log_tail[2] == "after: 0 1 2");
}

TEST_CASE("a child starts with no signal blocked or ignored, whatever the driver had set") {
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto ignored = std::signal(SIGPIPE, SIG_IGN);
  {
    Bench bench;
    CHECK(bench.run("reward", {"signal-state"}).log_tail == std::vector<std::string>{"blocked 0 ignored 0"});
  }
  std::signal(SIGPIPE, ignored);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("logs are appended to, and the report shows only what this child wrote") {
  Bench bench;
  bench.run("engine-0", {"print", "2", "0"});
  const Event second = bench.run("engine-0", {"print", "1", "0"});
  CHECK(second.log_tail == std::vector<std::string>{"line 1", "the end"});
  CHECK(read_file(bench.log("engine-0")) == "line 1\nline 2\nthe end\nline 1\nthe end\n");
}

TEST_CASE("log lines that are not UTF-8 do not break the report") {
  Bench bench;
  const Event exited = bench.run("engine-0", {"arguments", "after"});
  CHECK(exited.log_tail == std::vector<std::string>{"<after>"});
  Command command = bench.command("engine-0", {});
  command.argv = {"printf", "a\\377b\\n"};
  bench.agent.start(command);
  bench.expect(Kind::started, "engine-0");
  CHECK(bench.expect(Kind::exited, "engine-0").log_tail == std::vector<std::string>{"a\xEF\xBF\xBD"
                                                                                    "b"});
}

TEST_CASE("announcing does nothing without an agent, and refuses a descriptor that is no pipe") {
  ::unsetenv("VIME_READY_FD");
  CHECK_NOTHROW(announce_ready({{"port", 1}}));
  const UniqueFd other(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  ::setenv("VIME_READY_FD", std::to_string(other.get()).c_str(), 1);
  CHECK_THROWS_AS(announce_ready({{"port", 1}}), Error);
  CHECK(std::getenv("VIME_READY_FD") == nullptr);
  CHECK(::fcntl(other.get(), F_GETFD) >= 0);
}

}  // namespace vime::proc::test
