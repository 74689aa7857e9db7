// The driver's part of a push against stand-ins for engines and trainer ranks: what they say, and what the driver makes
// of it.
#include "loop/push.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/random.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

// An engine that says what the test lets it say.
struct StandInEngine {
  http::Server server{{}};
  std::string version = "default";
  std::string checksum = "00000000000000aa";
  Json others = Json::object();  // checksums of other parameters
  bool paused = false;
  int resumes = 0;

  StandInEngine() {
    const auto say = [this](const std::string& method, const std::string& path, const std::function<Json()>& body) {
      server.route(method, path, [body](const http::ServerRequest&, http::Responder responder) {
        responder.respond({200, body().dump()});
      });
    };
    say("POST", "/pause", [this] {
      paused = true;
      return Json{{"status", "paused"}};
    });
    say("POST", "/resume", [this] {
      paused = false;
      ++resumes;
      return Json{{"status", "resumed"}};
    });
    say("GET", "/weight_info", [this] { return Json{{"weight_version", version}}; });
    say("POST", "/weight_checker", [this] {
      Json sums = others;
      sums["w"] = checksum;
      return Json{{"checksums", sums}};
    });
    server.start();
  }
};

Json part(const std::string& name, int copy, const std::string& sum) {
  return {{"name", name}, {"copy", copy}, {"sum", sum}};
}

// Engines and two trainer ranks; rank 0 pushes all engines.
struct Scene {
  std::vector<std::unique_ptr<StandInEngine>> engines;
  http::Server ranks[2] = {http::Server({}), http::Server({})};
  std::string push_error;
  std::string replica[2] = {"dp 0, cp 0", "dp 1, cp 0"};
  Json parts[2] = {{part("w", 0, "00000000000000aa")}, {part("w", 0, "00000000000000aa")}};
  bool engines_take_version = true;
  bool leave_out_last = false;
  http::Client client;
  fleet::Supervisor supervisor{VIME_BINARY, random_token(), {}};
  std::unique_ptr<TrainerGroup> trainers;
  std::unique_ptr<fleet::Fleet> fleet;

  explicit Scene(int count) {
    std::vector<weights::EngineAddress> addresses;
    for (int i = 0; i < count; ++i) {
      engines.push_back(std::make_unique<StandInEngine>());
      addresses.push_back({i, "http://127.0.0.1:" + std::to_string(engines.back()->server.port()), ""});
    }
    std::vector<std::string> urls;
    for (int rank = 0; rank < 2; ++rank) {
      ranks[rank].route("POST", "/prepare_push", [](const http::ServerRequest&, http::Responder responder) {
        responder.respond({200, R"({"seconds": 0})"});
      });
      ranks[rank].route("POST", "/push", [this, rank](const http::ServerRequest& request, http::Responder responder) {
        responder.respond({200, push(rank, parse_json(request.body, "push")).dump()});
      });
      ranks[rank].start();
      urls.push_back("http://127.0.0.1:" + std::to_string(ranks[rank].port()));
    }
    trainers = std::make_unique<TrainerGroup>(client, supervisor, urls, "", milliseconds(5000));
    fleet = std::make_unique<fleet::Fleet>(client, supervisor, addresses,
                                           fleet::FleetOptions{milliseconds(5000), milliseconds(5000)});
  }

  Json push(int rank, const Json& body) {
    Json results = Json::array();
    const size_t count = engines.size() - (leave_out_last ? 1 : 0);
    for (size_t i = 0; rank == 0 && i < count; ++i) {
      const bool failed = !push_error.empty() && i + 1 == engines.size();
      if (engines_take_version && !failed) engines[i]->version = std::to_string(body.at("version").get<int64_t>());
      results.push_back({{"engine", i},
                         {"error", failed ? push_error : ""},
                         {"start_s", 1.0 + static_cast<double>(i)},
                         {"update_s", 20.0 - static_cast<double>(i)},
                         {"finish_s", 30.0}});
    }
    return {{"results", results},
            {"prepare_s", 0.5},
            {"extra_bytes", 7},
            {"replica", replica[rank]},
            {"parts", parts[rank]}};
  }

  // "" or what the push threw, with its exit status.
  std::string error_of(WeightPush& push, int expected_status) {
    try {
      push.run();
      return "";
    } catch (const Error& error) {
      CHECK(exit_status(error.kind()) == expected_status);
      return error.message();
    }
  }
};

}  // namespace

TEST_CASE("a push pauses, commits 1, 2, 3 and resumes every engine") {
  Scene scene(3);
  WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {.compare_contents = true});
  for (int64_t version = 1; version <= 3; ++version) {
    const PushReport report = push.run();
    CHECK(report.version == version);
    CHECK(push.committed() == version);
    CHECK(report.prepare_s == 0.5);
    CHECK(report.extra_bytes == 14);
    CHECK(report.start_s == 3.0);  // the slowest engine's
    CHECK(report.update_s == 20.0);
    CHECK(report.finish_s == 30.0);
    for (const auto& engine : scene.engines) CHECK_FALSE(engine->paused);
  }
  CHECK(scene.engines[2]->resumes == 3);
}

TEST_CASE("engines are made able to generate while they are still paused, and the pause lasts until they are") {
  Scene scene(2);
  WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {.compare_contents = true});
  int calls = 0;
  const PushReport report = push.run([&] {
    ++calls;
    CHECK(push.committed() == 1);
    for (const auto& engine : scene.engines) CHECK(engine->paused);
    std::this_thread::sleep_for(milliseconds(20));
  });
  CHECK(calls == 1);
  CHECK(report.pause_s >= report.transfer_s + 0.02);
  for (const auto& engine : scene.engines) CHECK_FALSE(engine->paused);
  scene.engines_take_version = false;
  for (const auto& engine : scene.engines) engine->version = "1";
  CHECK_THROWS_AS(push.run([&] { ++calls; }), Error);
  CHECK(calls == 1);
}

TEST_CASE("planted.an engine on another version ends the run with status 3, whichever it is, with or without ci_test") {
  for (const bool compare : {false, true}) {
    for (size_t stale = 0; stale < 3; ++stale) {
      Scene scene(3);
      WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {.compare_contents = compare});
      push.run();
      scene.engines_take_version = false;
      for (size_t i = 0; i < 3; ++i) scene.engines[i]->version = i == stale ? "1" : "2";
      const std::string error = scene.error_of(push, 3);
      CHECK(error == "engine " + std::to_string(stale) + ": weight version mismatch: expected 2, engine says 1");
      CHECK(push.committed() == 1);
      CHECK(scene.engines[stale]->paused);
    }
  }
}

TEST_CASE("contents that differ on an engine or a trainer rank end the run with status 3 when they are compared") {
  for (const std::string who : {"engine 1", "trainer (dp 1, cp 0)"}) {
    Scene scene(2);
    if (who == "engine 1") {
      scene.engines[1]->checksum = "00000000000000ab";
    } else {
      scene.parts[1] = {part("w", 0, "00000000000000ab")};
    }
    WeightPush blind(*scene.fleet, *scene.trainers, weights::VersionLedger(), {});
    CHECK(scene.error_of(blind, 0) == "");
    WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {.compare_contents = true});
    const std::string error = scene.error_of(push, 3);
    CHECK(error.find(who + ": contents differ") != std::string::npos);
    CHECK(push.committed() == 0);
  }
}

TEST_CASE("parts of the ranks of one replica add up, modulo 2^64, and their copies are held against the whole") {
  Scene scene(1);
  scene.replica[1] = scene.replica[0];
  scene.parts[0] = {part("w", 0, "ffffffffffffffff"), part("norm", 0, "0000000000000007")};
  scene.parts[1] = {part("w", 0, "00000000000000ab"), part("norm", 1, "0000000000000007")};
  scene.engines[0]->others = {{"norm", "0000000000000007"}};
  WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {.compare_contents = true});
  CHECK(scene.error_of(push, 0) == "");
  scene.parts[1][1] = part("norm", 1, "0000000000000008");
  CHECK(scene.error_of(push, 3).find("trainer (dp 0, cp 0, copy 1): contents differ from the trainer's in 1 of 1 "
                                     "parameters, first norm") != std::string::npos);
  scene.parts[1] = {part("norm", 1, "0000000000000007")};
  CHECK(scene.error_of(push, 3).find("engine 0: contents differ from the trainer's in 1 of 2 parameters, first w") !=
        std::string::npos);
}

TEST_CASE("an engine that failed or was left out ends the run with status 4, and its number is never used again") {
  Scene scene(2);
  WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {.compare_contents = true});
  scene.push_error = "engine 1: /update_weights: HTTP 500: planted";
  CHECK(scene.error_of(push, 4).find("planted") != std::string::npos);
  scene.push_error.clear();
  scene.leave_out_last = true;
  CHECK(scene.error_of(push, 4).find("engine 1 was pushed by 0 ranks, expected one") != std::string::npos);
  scene.leave_out_last = false;
  CHECK(push.run().version == 3);
}

TEST_CASE("a version that is no integer is refused as one") {
  Scene scene(1);
  scene.engines_take_version = false;
  scene.engines[0]->version = "/models/tiny";
  WeightPush push(*scene.fleet, *scene.trainers, weights::VersionLedger(), {});
  CHECK(scene.error_of(push, 3).find("is not an integer") != std::string::npos);
}
