// Who leaves the GPU when, against stand-ins that note what they are told.
#include "loop/turns.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

struct Scene {
  std::mutex mutex;
  std::vector<std::string> told;
  std::atomic<int> engine_status = 200;
  http::Server engine{{}};
  http::Server rank{{}};
  http::Client client;
  fleet::Supervisor supervisor{VIME_BINARY, random_token(), {}};
  std::unique_ptr<TrainerGroup> trainers;
  std::unique_ptr<fleet::Fleet> fleet;

  Scene() {
    note(engine, "/sleep", "engine sleeps");
    note(engine, "/wake_up", "engine wakes");
    note(rank, "/offload", "trainer leaves");
    note(rank, "/onload", "trainer comes");
    trainers = std::make_unique<TrainerGroup>(
        client, supervisor, std::vector<std::string>{"http://127.0.0.1:" + std::to_string(rank.port())}, "",
        milliseconds(5000));
    fleet = std::make_unique<fleet::Fleet>(client, supervisor,
                                           std::vector<weights::EngineAddress>{{
                                               0,
                                               "http://127.0.0.1:" + std::to_string(engine.port()),
                                               "",
                                           }},
                                           fleet::FleetOptions{milliseconds(5000), milliseconds(5000)});
  }

  void note(http::Server& server, const std::string& path, const std::string& what) {
    server.route("POST", path, [this, what, &server](const http::ServerRequest& request, http::Responder responder) {
      {
        const std::lock_guard lock(mutex);
        told.push_back(what);
        for (const auto& [key, value] : request.query) told.back() += " " + key + "=" + value;
      }
      responder.respond({&server == &engine ? engine_status.load() : 200, "{}"});
    });
    if (path == "/wake_up" || path == "/onload") server.start();
  }

  std::string take() {
    const std::lock_guard lock(mutex);
    return join(std::exchange(told, {}), ", ");
  }
};

}  // namespace

TEST_CASE("trainer and engine take turns on a shared GPU, and nobody is told twice") {
  Scene scene;
  Turns turns({.train = true, .rollout = true}, *scene.fleet, *scene.trainers);
  // The first push: everybody is there.
  turns.for_push();
  CHECK(scene.take().empty());
  turns.for_generation();
  CHECK(scene.take() == "trainer leaves");
  turns.for_training();
  CHECK(scene.take() == "engine sleeps level=2, trainer comes");
  turns.for_training();  // a checkpoint after the training
  CHECK(scene.take().empty());
  turns.for_push();
  CHECK(scene.take() == "engine wakes tags=weights");
  turns.for_generation();
  CHECK(scene.take() == "trainer leaves, engine wakes tags=kv_cache");
}

TEST_CASE("an engine that will not sleep does not keep a checkpoint from being saved, but does keep training") {
  Scene scene;
  scene.engine_status = 409;
  Turns turns({.train = true, .rollout = true}, *scene.fleet, *scene.trainers);
  turns.for_generation();
  CHECK(scene.take() == "trainer leaves");
  CHECK_THROWS_AS(turns.for_training(), Error);
  CHECK(scene.take() == "engine sleeps level=2");
  turns.for_saving();
  CHECK(scene.take() == "engine sleeps level=2, trainer comes");
}

TEST_CASE("each side can stay for itself") {
  Scene scene;
  Turns trainer_only({.train = true, .rollout = false}, *scene.fleet, *scene.trainers);
  trainer_only.for_generation();
  trainer_only.for_training();
  trainer_only.for_push();
  CHECK(scene.take() == "trainer leaves, trainer comes");
  Turns engine_only({.train = false, .rollout = true}, *scene.fleet, *scene.trainers);
  engine_only.for_generation();
  engine_only.for_training();
  engine_only.for_push();
  engine_only.for_generation();
  CHECK(scene.take() == "engine sleeps level=2, engine wakes tags=weights, engine wakes tags=kv_cache");
}

TEST_CASE("without sharing nobody is told anything") {
  Scene scene;
  Turns turns({}, *scene.fleet, *scene.trainers);
  turns.for_push();
  turns.for_generation();
  turns.for_training();
  CHECK(scene.take().empty());
  CHECK(turns.take_seconds() >= 0);
}
