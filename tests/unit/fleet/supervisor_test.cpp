#include "fleet/supervisor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/random.hpp"

using namespace vime;

namespace {

const std::string kStandIn = std::string(VIME_BIN_DIR) + "/proc_test_child";

struct Bench {
  proc::Command command(const std::string& role, const std::vector<std::string>& mode) const {
    proc::Command command;
    command.role = role;
    command.argv = {kStandIn};
    command.argv.insert(command.argv.end(), mode.begin(), mode.end());
    command.log_path = (folder.path() / (role + ".log")).string();
    return command;
  }
  void wait_until(const std::function<bool()>& done) {
    supervisor.wait_until(done, Deadline(milliseconds(20000)), "the children");
  }

  TempDir folder;
  std::vector<std::string> told;
  fleet::Supervisor supervisor{kStandIn, "f" + random_token(),
                               [this](const std::string& kind, const Json&) { told.push_back(kind); }};
};

}  // namespace

TEST_CASE("a death that nobody asked to hear of ends the run with its last words") {
  Bench bench;
  bench.supervisor.start(bench.command("trainer-0", {"print", "2", "3"}));
  try {
    bench.wait_until([] { return false; });
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::process_failed);
    CHECK(e.message().find("trainer-0 exited with status 3") == 0);
    CHECK(e.message().find("| the end") != std::string::npos);
  }
}

TEST_CASE("a death that somebody asked for is told to them, and the role may be started again from there") {
  Bench bench;
  std::vector<std::optional<int>> codes;
  std::function<void(const proc::Event&)> again = [&](const proc::Event& event) {
    codes.push_back(event.code);
    CHECK(event.log_tail.back() == "the end");
    if (codes.size() < 3) bench.supervisor.start(bench.command("reward-0", {"print", "1", "7"}), again);
  };
  bench.supervisor.start(bench.command("reward-0", {"print", "1", "7"}), again);
  bench.wait_until([&] { return codes.size() == 3; });
  CHECK(codes == std::vector<std::optional<int>>{7, 7, 7});
  // Once told, the role is as any other.
  bench.supervisor.start(bench.command("reward-0", {"print", "1", "7"}));
  CHECK_THROWS_AS(bench.wait_until([] { return false; }), Error);
}

TEST_CASE("a supervisor that asks for preloading gets its processes as forks of the agent") {
  Bench bench;
  fleet::Supervisor preloading(kStandIn, "f" + random_token(), {}, {.preload = true});
  for (fleet::Supervisor* supervisor : {&preloading, &bench.supervisor}) {
    supervisor->start(bench.command("engine-0", {"witness"}));
    const Json info = supervisor->wait_ready({"engine-0"}, Deadline(milliseconds(20000))).at("engine-0");
    CHECK(info.at("preloaded_by") == (supervisor == &preloading ? preloading.agent_pid() : 0));
    supervisor->shutdown(milliseconds(1000));
  }
}

TEST_CASE("a failed start and a stop are told as ends too") {
  Bench bench;
  std::vector<proc::Event> ends;
  const auto keep = [&](const proc::Event& event) { ends.push_back(event); };
  proc::Command missing = bench.command("reward-0", {});
  missing.argv = {"/no/such/program"};
  bench.supervisor.start(missing, keep);
  bench.wait_until([&] { return ends.size() == 1; });
  CHECK(ends[0].kind == proc::Event::Kind::failed);
  CHECK(ends[0].error.find("/no/such/program") != std::string::npos);
  bench.supervisor.start(bench.command("reward-1", {"ignore-term"}), keep);
  bench.supervisor.wait_ready({"reward-1"}, Deadline(milliseconds(20000)));
  bench.supervisor.stop("reward-1", milliseconds(0));
  bench.wait_until([&] { return ends.size() == 2; });
  CHECK(ends[1].role == "reward-1");
  CHECK(ends[1].expected);
  CHECK(bench.told.back() == "exited");
}
