// An agent that starts children by a fork of itself. That a child finds the same in either case is held by the other
// tests of this room, which run both ways.
#include <algorithm>

#include "base/strings.hpp"
#include "fixture.hpp"

namespace vime::proc::test {

using Kind = Event::Kind;

namespace {

int preloader_of(const Event& ready) {
  return ready.info.at("preloaded_by").get<int>();
}

}  // namespace

TEST_CASE("a preloading agent starts children as forks of itself, any other by exec") {
  Bench forking({.preload = true}), executing({.preload = false});
  const Event forked = forking.start_ready("trainer-0", {"witness"});
  CHECK(preloader_of(forked) == forking.agent.pid());
  CHECK(forked.info.at("parent") == forking.agent.pid());
  CHECK(forked.pid != forking.agent.pid());
  CHECK(preloader_of(executing.start_ready("trainer-0", {"witness"})) == 0);
}

TEST_CASE("a preloading agent starts by exec what it does not cover") {
  Bench bench({.preload = true});
  Command command = bench.command("reward-0", {});
  command.argv = {"printf", "a line"};
  bench.agent.start(command);
  bench.expect(Kind::started, "reward-0");
  CHECK(bench.expect(Kind::exited, "reward-0").log_tail == std::vector<std::string>{"a line"});
}

TEST_CASE("a command line longer than the agent has room for is run by exec") {
  Bench bench({.preload = true});
  CHECK(preloader_of(bench.start_ready("engine-0", {"witness", std::string(4000, 'x')})) == bench.agent.pid());
  CHECK(preloader_of(bench.start_ready("engine-1", {"witness", std::string(100000, 'x')})) == 0);
}

TEST_CASE("a forked child shows its own command line, name and environment from the first moment on") {
  Bench bench({.preload = true});
  Command command = bench.command("engine-0", {"sleep", "first", "second"});
  command.env = {{"VIME_KEPT", "still here"}};
  bench.agent.start(command);
  const Event started = bench.expect(Kind::started, "engine-0");
  const std::string process = "/proc/" + std::to_string(started.pid);
  CHECK(command_line(started.pid) == join(command.argv, " "));
  CHECK(read_file(process + "/comm") == "proc_test_child\n");
  const std::vector<std::string> environment = split(read_file(process + "/environ"), '\0');
  const auto has = [&](const std::string& entry) {
    return std::find(environment.begin(), environment.end(), entry) != environment.end();
  };
  CHECK(has("VIME_RUN_ID=" + bench.run_id));
  CHECK(has("VIME_CHILD=" + bench.run_id + "/" + std::to_string(bench.agent.pid()) + "/1"));
  CHECK(has("VIME_KEPT=still here"));
  CHECK(read_file(process + "/environ").find("VIME_ARGUMENT_ROOM") == std::string::npos);
  bench.expect(Kind::ready, "engine-0");
}

TEST_CASE("an exception that leaves a forked child's main ends the child, and the agent goes on") {
  Bench bench({.preload = true});
  CHECK(bench.run("trainer-0", {"throw"}).signal == SIGABRT);
  CHECK(bench.run("trainer-0", {"print", "1", "3"}).code == 3);
}

}  // namespace vime::proc::test
