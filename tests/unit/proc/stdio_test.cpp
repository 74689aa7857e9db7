// Children whose stdin and stdout are the driver's.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "fixture.hpp"

namespace vime::proc::test {
namespace {

using Kind = Event::Kind;

// The driver's ends of a child's stdin and stdout.
struct Pipes {
  UniqueFd in, out, child_in, child_out;

  Pipes() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    child_in = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    out = UniqueFd(ends[0]);
    child_out = UniqueFd(ends[1]);
  }
  void start(Bench& bench, Command command) {
    command.stdin_fd = child_in.get();
    command.stdout_fd = child_out.get();
    bench.agent.start(command);
    child_in.reset();
    child_out.reset();
  }
  void write(const std::string& text) const {
    REQUIRE(::write(in.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  // What comes next, up to a line end; "" at the end of the stream.
  std::string read_line() const {
    std::string line;
    const Deadline deadline(milliseconds(10000));
    for (char c = 0; c != '\n'; line += c) {
      pollfd polled{out.get(), POLLIN, 0};
      REQUIRE(::poll(&polled, 1, static_cast<int>(deadline.remaining().count())) == 1);
      if (::read(out.get(), &c, 1) != 1) return line;
    }
    return line;
  }
};

}  // namespace

TEST_CASE("a child speaks with the driver over the pipes that came with its start, and only stderr is logged") {
  Bench bench;
  Pipes pipes;
  pipes.start(bench, bench.command("reward-0", {"echo", "first"}));
  bench.expect(Kind::started, "reward-0");
  pipes.write("one\n");
  CHECK(pipes.read_line() == "first one\n");
  pipes.in.reset();
  CHECK(pipes.read_line().empty());  // neither the driver nor the agent holds the child's ends
  const Event exited = bench.expect(Kind::exited, "reward-0");
  CHECK(exited.code == 0);
  CHECK(exited.log_tail == std::vector<std::string>{"end of input"});
}

TEST_CASE("starts in a row keep their pipes apart, and a start without pipes among them takes none") {
  Bench bench;
  std::vector<Pipes> pipes(8);
  for (size_t i = 0; i < pipes.size(); ++i) {
    const std::string number = std::to_string(i);
    pipes[i].start(bench, bench.command("reward-" + number, {"echo", number}));
    bench.agent.start(bench.command("plain-" + number, {"echo", "plain"}));
  }
  for (size_t i = 0; i < pipes.size(); ++i) {
    pipes[i].write("x\n");
    CHECK(pipes[i].read_line() == std::to_string(i) + " x\n");
  }
}

TEST_CASE("a start with pipes that fails closes them") {
  Bench bench;
  Pipes no_log, no_program;
  Command command = bench.command("a", {"echo", "x"});
  command.log_path = "/no/such/folder/log";
  no_log.start(bench, command);
  CHECK(bench.expect(Kind::failed, "a").error.find("open log") != std::string::npos);
  CHECK(no_log.read_line().empty());
  command = bench.command("b", {});
  command.argv = {"/no/such/program"};
  no_program.start(bench, command);
  bench.expect(Kind::failed, "b");
  CHECK(no_program.read_line().empty());
}

TEST_CASE("a command with stdin alone is refused") {
  Bench bench;
  Command command = bench.command("a", {"echo", "x"});
  command.stdin_fd = 0;
  CHECK_THROWS_AS(bench.agent.start(command), Error);
}

TEST_CASE("the agent keeps no descriptor of a child that ended") {
  Bench bench;
  bench.run("warm", {"print", "1", "0"});
  const size_t before = open_descriptors(bench.agent.pid());
  for (int i = 0; i < 5; ++i) {
    Pipes pipes;
    pipes.start(bench, bench.command("reward-0", {"echo", "x"}));
    bench.expect(Kind::started, "reward-0");
    pipes.in.reset();
    bench.expect(Kind::exited, "reward-0");
  }
  CHECK(open_descriptors(bench.agent.pid()) == before);
}

}  // namespace vime::proc::test
