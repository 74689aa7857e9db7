// However vime ends, nothing of the run is left within five seconds, and nothing else is touched. The driver here is a
// process of its own with an agent and four children: grandchildren in every kind of group and session, daemons, one
// deaf to TERM.
#include <sys/wait.h>

#include "base/deadline.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "fixture.hpp"

namespace vime::proc::test {

using Kind = Event::Kind;

namespace {

struct Scene {
  explicit Scene(const std::string& watching, const std::string& grace_ms = "300")
      : run_id("t" + random_token()),
        users_engine({"vime engine", "sleep"}),
        users_agent({"vime agent", "sleep"}),
        driver({"vime run", "driver", folder.path().string(), run_id, watching, grace_ms,
                default_options().preload ? "fork" : "exec"}) {
    const std::vector<std::string> up = split(driver.read_line(), ' ');
    REQUIRE(up.size() == 2);
    REQUIRE(up[0] == "up");
    agent = std::stoi(up[1]);
    // driver, agent, four children, four grandchildren, two daemons
    REQUIRE(processes_with(run_id).size() == 12);
  }

  void check_nothing_left() {
    const bool gone = eventually([&] { return processes_with(run_id).empty(); });
    for (const pid_t pid : processes_with(run_id)) MESSAGE("left: ", pid, " ", command_line(pid));
    CHECK(gone);
    CHECK(is_alive(users_engine.pid()));
    CHECK(is_alive(users_agent.pid()));
  }

  TempDir folder;
  std::string run_id;
  Outsider users_engine, users_agent;  // what a user happens to run under similar names
  Outsider driver;
  pid_t agent = 0;
};

}  // namespace

TEST_CASE("nothing is left after the driver is killed by KILL, TERM, INT or HUP that it does not handle") {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP}) {
    CAPTURE(signal);
    Scene scene("plain");
    scene.driver.signal(signal);
    const auto status = scene.driver.wait(milliseconds(5000));
    REQUIRE(status);
    CHECK(WTERMSIG(*status) == signal);
    scene.check_nothing_left();
  }
}

TEST_CASE("a driver that handles INT, TERM or HUP finishes by itself and leaves nothing") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    Scene scene("watch");
    scene.driver.signal(signal);
    CHECK(scene.driver.read_line() == "finishing");
    const auto status = scene.driver.wait(milliseconds(5000));
    REQUIRE(status);
    CHECK(WEXITSTATUS(*status) == 130);
    CHECK(processes_with(scene.run_id).empty());  // at once: the driver waited for it
    scene.check_nothing_left();
  }
}

TEST_CASE("a second interrupt during a long shutdown leaves at once, and nothing is left") {
  Scene scene("watch", "60000");
  scene.driver.signal(SIGINT);
  CHECK(scene.driver.read_line() == "finishing");
  CHECK(is_alive(scene.driver.pid()));
  const auto asked = SteadyClock::now();
  scene.driver.signal(SIGINT);
  const auto status = scene.driver.wait(milliseconds(5000));
  REQUIRE(status);
  CHECK(WEXITSTATUS(*status) == 130);
  CHECK(seconds_since(asked) < 5.0);  // and not the 60 s of the shutdown
  scene.check_nothing_left();
}

TEST_CASE("when the agent is killed its children and theirs go too, and the loss is told for ever") {
  Bench bench;
  bench.start_ready("workers", {"fork-grandchildren"});
  bench.start_ready("daemon", {"double-fork", "stay", "keep"});
  REQUIRE(::kill(bench.agent.pid(), SIGKILL) == 0);
  for (int i = 0; i < 3; ++i) {
    const Event lost = bench.expect(Kind::agent_lost, "");
    CHECK(lost.error ==
          "vime agent (process " + std::to_string(bench.agent.pid()) + ") was killed by signal 9 (SIGKILL)");
  }
  CHECK(processes_with(bench.run_id).empty());
  CHECK_THROWS_AS(bench.agent.start(bench.command("engine-0", {"sleep"})), Error);
  bench.agent.stop("workers", milliseconds(0));
  bench.agent.shutdown(milliseconds(1000));
  bench.expect(Kind::agent_lost, "");
}

TEST_CASE("an agent that is told to end by a signal ends its children first and says why it left") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    CAPTURE(signal);
    Bench bench;
    bench.start_ready("workers", {"fork-grandchildren"});
    REQUIRE(::kill(bench.agent.pid(), signal) == 0);
    CHECK(bench.expect(Kind::exited, "workers").expected);
    const Event lost = bench.expect(Kind::agent_lost, "");
    CHECK(lost.error.find(" left: SIG") != std::string::npos);
    CHECK(processes_with(bench.run_id).empty());
  }
}

TEST_CASE("when driver and agent are both killed, the children that the agent started still go") {
  Scene scene("plain");
  REQUIRE(::kill(scene.agent, SIGSTOP) == 0);  // so that it cannot act on the driver's end
  scene.driver.signal(SIGKILL);
  REQUIRE(scene.driver.wait(milliseconds(5000)));
  REQUIRE(::kill(scene.agent, SIGKILL) == 0);
  // The four grandchildren and the two daemons have nobody left who knows them; the test ends them itself.
  CHECK(eventually([&] { return processes_with(scene.run_id).size() == 6; }));
  for (const pid_t pid : processes_with(scene.run_id)) ::kill(pid, SIGKILL);
  CHECK(eventually([&] { return processes_with(scene.run_id).empty(); }));
}

}  // namespace vime::proc::test
