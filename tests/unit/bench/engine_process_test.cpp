#include "bench/engine_process.hpp"

#include <doctest/doctest.h>

#include <csignal>

#include "engines.hpp"

namespace vime::bench::test {
namespace {

std::string refusal_of_start(std::vector<std::string> command, milliseconds timeout = milliseconds(20'000)) {
  try {
    const EngineProcess engine(std::move(command), engine_options(timeout), timeout);
    return "started";
  } catch (const Error& error) {
    return error.message();
  }
}

template <typename Step>
std::string refusal_of(const Step& step) {
  try {
    step();
    return "done";
  } catch (const Error& error) {
    return error.message();
  }
}

}  // namespace

TEST_CASE("an engine that does not come to serve is an error that says why, and no process is left") {
  CHECK(refusal_of_start(engine_command("serves")) == "started");
  CHECK_FALSE(has_children());
  CHECK(refusal_of_start(engine_command("says nothing"), milliseconds(200)) ==
        "the engine's process: no answer within 200 ms");
  CHECK_FALSE(has_children());
  CHECK(refusal_of_start(engine_command("dies")) == "the engine's process: it exited with status 3");
  CHECK_FALSE(has_children());
  CHECK(refusal_of_start(engine_command("babbles")).find("the engine's reply") != std::string::npos);
  CHECK_FALSE(has_children());
  CHECK(refusal_of_start(engine_command("has no port")) == "the engine's process: no port has the number 70000");
  CHECK_FALSE(has_children());
  CHECK(refusal_of_start({"/nowhere/vime"}) ==
        "the engine's process: exec \"/nowhere/vime\": No such file or directory");
  CHECK_FALSE(has_children());
}

TEST_CASE("calls to an engine that has gone, hangs or does not listen end by their deadline") {
  std::signal(SIGPIPE, SIG_IGN);  // as vime's main does
  const Json memory = {{"call", "memory"}};
  {
    EngineProcess engine(engine_command("serves"), engine_options(milliseconds(20'000)));
    CHECK(engine.call(memory).at("free").size() == 1);
    CHECK(refusal_of([&] { engine.call({{"call", "sing"}}); }).find("unknown call sing") != std::string::npos);
    ::kill(engine.pid(), SIGKILL);
    CHECK(refusal_of([&] { engine.call(memory); }) == "the engine's process: it was killed by signal 9 (SIGKILL)");
  }
  CHECK_FALSE(has_children());
  {
    EngineProcess engine(engine_command("listens no more"), engine_options(milliseconds(200)), milliseconds(200));
    CHECK(refusal_of([&] { engine.call(memory); }) == "the engine's process: no answer within 200 ms");
    // More than the pipe holds.
    CHECK(refusal_of([&] {
            engine.send({{"call", std::string(300'000, 'x')}});
          }) == "the engine's process: no answer within 200 ms");
    ::kill(engine.pid(), SIGTERM);  // it would not look at the end of its stdin
  }
  CHECK_FALSE(has_children());
}

}  // namespace vime::bench::test
