#include "bench/pushing_ranks.hpp"

#include <doctest/doctest.h>

#include <csignal>

#include "bench/weight_sync.hpp"
#include "engines.hpp"
#include "http/client.hpp"
#include "weights/version.hpp"

namespace vime::bench::test {
namespace {

constexpr Transport kTransports[] = {Transport::shm, Transport::tcp};

// A rank and an engine of the tiny model.
struct Pair {
  EngineProcess engine;
  PushingRanks trainer;
  http::Client http;
  weights::EngineClient client;
  int64_t version = 0;

  explicit Pair(Transport transport, milliseconds timeout = milliseconds(20'000))
      : engine(engine_command("serves"), engine_options(timeout)),
        trainer(options(transport, timeout)),
        client(http, {0, "http://127.0.0.1:" + std::to_string(engine.port()), ""}, timeout, timeout) {}

  static RanksOptions options(Transport transport, milliseconds timeout) {
    RanksOptions options;
    options.model = model_list("tiny");
    options.transport = transport;
    options.uuids = uuids();
    options.chunk_bytes = 64 << 10;  // several messages
    options.timeout = timeout;
    return options;
  }
  // "" when it went well, whichever way an error came.
  std::string push() {
    trainer.new_weights(static_cast<uint64_t>(++version));
    try {
      return trainer.push(client, 1, version, version == 1).error;
    } catch (const Error& error) {
      return error.message();
    }
  }
  bool contents_equal() {
    return weights::version_problems(version, {client.weight_version()}).empty() &&
           weights::checksum_problems(trainer.checksums(), {{"engine", client.checksums()}}).empty();
  }
};

}  // namespace

TEST_CASE("every push brings the ranks' new contents to the engine") {
  for (const Transport transport : kTransports) {
    CAPTURE(static_cast<int>(transport));
    Pair pair(transport);
    for (int i = 0; i < 3; ++i) {
      CHECK(pair.push() == "");
      CHECK(pair.contents_equal());
    }
    pair.trainer.new_weights(99);
    CHECK_FALSE(pair.contents_equal());
  }
  CHECK_FALSE(has_children());
}

TEST_CASE("a push into an engine that has gone or hangs ends with an error that names it, and leaves no process") {
  for (const Transport transport : kTransports) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      CAPTURE(static_cast<int>(transport));
      CAPTURE(signal);
      const auto start = SteadyClock::now();
      {
        Pair pair(transport, milliseconds(1000));
        CHECK(pair.push() == "");
        ::kill(pair.engine.pid(), signal);
        CHECK(pair.push().find("engine 0") != std::string::npos);
        if (signal == SIGSTOP) ::kill(pair.engine.pid(), SIGKILL);  // it would not look at the end of its stdin
      }
      CHECK(seconds_since(start) < 60);
      CHECK_FALSE(has_children());
    }
  }
}

TEST_CASE("a benchmark whose engine does not start is an error, and leaves no process") {
  WeightSyncOptions options;
  options.model = "tiny";
  options.transport = "shm";
  options.engine_command = engine_command("dies");
  CHECK_THROWS_WITH_AS(weight_sync(options), "the engine's process: it exited with status 3", Error);
  CHECK_FALSE(has_children());
}

}  // namespace vime::bench::test
