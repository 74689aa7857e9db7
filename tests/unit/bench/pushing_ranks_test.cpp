#include "bench/pushing_ranks.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>

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
      return trainer.push({&client}, version, version == 1).error;
    } catch (const Error& error) {
      return error.message();
    }
  }
  bool contents_equal() {
    return weights::version_problems(version, {client.weight_version()}).empty() &&
           weights::checksum_problems(trainer.checksums(), {{"engine", client.checksums()}}).empty();
  }
};

// Four ranks, and engines of some workers each that share their devices.
struct Slots {
  Slots(int workers, milliseconds timeout) : trainer(options(workers, timeout)) {
    const std::vector<std::string> devices = four_uuids();
    for (auto at = devices.begin(); at < devices.end(); at += workers) {
      Json of_engine = engine_options(timeout);
      of_engine["uuids"] = std::vector<std::string>(at, at + workers);
      processes.push_back(std::make_unique<EngineProcess>(engine_command("serves"), of_engine));
      clients.push_back(std::make_unique<weights::EngineClient>(
          http,
          weights::EngineAddress{static_cast<int>(clients.size()),
                                 "http://127.0.0.1:" + std::to_string(processes.back()->port()), ""},
          timeout, timeout));
      engines.push_back(clients.back().get());
    }
  }
  static std::vector<std::string> four_uuids() {
    std::vector<std::string> four;
    for (int i = 0; i < 4; ++i) four.push_back(placement::cpu_device_uuid("bench", 0, i));
    return four;
  }
  static RanksOptions options(int workers, milliseconds timeout) {
    RanksOptions options = Pair::options(Transport::shm, timeout);
    options.uuids = four_uuids();
    options.engine_workers = workers;
    return options;
  }

  PushingRanks trainer;
  http::Client http;
  std::vector<std::unique_ptr<EngineProcess>> processes;
  std::vector<std::unique_ptr<weights::EngineClient>> clients;
  std::vector<weights::EngineClient*> engines;
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

TEST_CASE("engines of any size read the shards of all ranks") {
  for (const int workers : {1, 2, 4}) {
    CAPTURE(workers);
    Slots slots(workers, milliseconds(20'000));
    for (int64_t version = 1; version <= 3; ++version) {
      slots.trainer.new_weights(static_cast<uint64_t>(version));
      CHECK(slots.trainer.push(slots.engines, version, version == 1).error == "");
      for (const auto& client : slots.clients) {
        CHECK(weights::version_problems(version, {client->weight_version()}).empty());
        CHECK(weights::checksum_problems(slots.trainer.checksums(), {{"engine", client->checksums()}}).empty());
      }
    }
    slots.trainer.new_weights(99);
    CHECK_FALSE(
        weights::checksum_problems(slots.trainer.checksums(), {{"engine", slots.clients[0]->checksums()}}).empty());
  }
  CHECK_FALSE(has_children());
}

TEST_CASE("an engine that dies or hangs between others fails alone, and by its name") {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    CAPTURE(signal);
    {
      Slots slots(2, milliseconds(1000));
      CHECK(slots.trainer.push(slots.engines, 1, true).error == "");
      slots.trainer.new_weights(2);
      slots.engines[1]->pause("abort", true);  // so that it is the push itself that finds it
      ::kill(slots.processes[1]->pid(), signal);
      std::string error;
      try {
        error = slots.trainer.push(slots.engines, 2, false).error;
      } catch (const Error& thrown) {
        error = thrown.message();
      }
      CHECK(error.find("engine 1") != std::string::npos);
      CHECK(error.find("engine 0") == std::string::npos);
      if (signal == SIGSTOP) ::kill(slots.processes[1]->pid(), SIGKILL);
    }
    CHECK_FALSE(has_children());
  }
}

TEST_CASE("sizes that do not go together are refused before anything starts") {
  WeightSyncOptions options;
  options.model = "tiny";
  options.engine_command = engine_command("dies");
  options.transport = "shm";
  options.tensor_parallel = 4;
  options.engine_workers = 3;
  CHECK_THROWS_WITH_AS(weight_sync(options), doctest::Contains("--engine-workers 3"), Error);
  options.engine_workers = 2;
  options.whole_tensors = true;
  CHECK_THROWS_WITH_AS(weight_sync(options), doctest::Contains("on GPUs only"), Error);
  options.tensor_parallel = 1;
  options.engine_workers = 1;
  CHECK_THROWS_WITH_AS(weight_sync(options), doctest::Contains("colocated engines of several ranks"), Error);
  options.tensor_parallel = 4;
  options.whole_tensors = false;
  options.transport = "tcp";
  CHECK_THROWS_WITH_AS(weight_sync(options), doctest::Contains("on GPUs only"), Error);
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
