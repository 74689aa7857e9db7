// The state machine of weight updates, pause and sleep, without HTTP.
#include "engine/core.hpp"

#include <doctest/doctest.h>

#include "fake_executor.hpp"

using namespace vime;
using namespace vime::engine;

namespace {

struct Rig {
  explicit Rig(bool loaded = true, int64_t slots = 4) {
    fake.slots = slots;
    core = std::make_unique<EngineCore>(fake, CoreOptions{{}, loaded, "/models/m", 1});
  }
  Verdict submit(int64_t max_tokens = 5) {
    Generation generation;
    generation.prompt = {1, 2};
    generation.sampling.max_tokens = max_tokens;
    generation.done = [this](GenerationResult result) { results.push_back(std::move(result)); };
    std::vector<Generation> all;
    all.push_back(std::move(generation));
    return core->submit(std::move(all), nullptr);
  }
  Verdict pause(PauseMode mode, bool clear_cache = true) {
    Verdict seen{0, "not answered"};
    core->pause(mode, clear_cache, [&seen](const Verdict& verdict) { seen = verdict; });
    return seen;
  }
  Verdict sleep(int level) {
    Verdict seen{0, "not answered"};
    core->sleep(level, PauseMode::abort, [&seen](const Verdict& verdict) { seen = verdict; });
    return seen;
  }
  void run() {
    while (core->step()) {
    }
  }
  void push(const std::string& version) {
    REQUIRE(core->init_transfer(Json::object()).ok());
    REQUIRE(core->start_update().ok());
    REQUIRE(core->update(Json::object()).ok());
    REQUIRE(core->finish_update(version).ok());
  }

  FakeExecutor fake;
  std::unique_ptr<EngineCore> core;
  std::vector<GenerationResult> results;
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a session goes init, start, update, finish and only finish records the version") {
  Rig rig;
  CHECK(rig.core->version() == "default");
  REQUIRE(rig.core->init_transfer(Json::object()).ok());
  REQUIRE(rig.core->start_update().ok());
  REQUIRE(rig.core->update(Json::object()).ok());
  CHECK(rig.core->version() == "default");
  REQUIRE(rig.core->finish_update("7").ok());
  CHECK(rig.core->version() == "7");
  REQUIRE(rig.core->start_update().ok());
  REQUIRE(rig.core->finish_update("").ok());
  CHECK(rig.core->version() == "7");
}

TEST_CASE("calls out of order are refused with vLLM's texts and change nothing") {
  Rig rig;
  CHECK(rig.core->update(Json::object()).error == "start_weight_update must be called before update_weights.");
  CHECK(rig.core->finish_update("1").error == "finish_weight_update called without a matching start_weight_update.");
  REQUIRE(rig.core->start_update().ok());
  CHECK(holds(rig.core->update(Json::object()).error,
              "weight transfer not initialized. Call init_transfer_engine() first."));
  const Verdict again = rig.core->start_update();
  CHECK(again.status == 500);
  CHECK(again.error ==
        "start_weight_update called while a weight update is already active. Call finish_weight_update first.");
  CHECK_FALSE(rig.core->init_transfer(Json::object()).ok());
  // The first session is still the active one.
  REQUIRE(rig.core->finish_update("2").ok());
  CHECK(rig.fake.calls == std::vector<std::string>{"start", "finish"});
  CHECK(rig.core->version() == "2");
}

TEST_CASE("a failed init leaves the transfer uninitialized") {
  Rig rig;
  rig.fake.failing["init"] = ErrorKind::refused;
  CHECK(rig.core->init_transfer(Json::object()).status == 500);
  REQUIRE(rig.core->start_update().ok());
  CHECK(holds(rig.core->update(Json::object()).error, "not initialized"));
}

TEST_CASE(
    "an update that fails clears the session, keeps the version and makes the weights unusable until a whole session") {
  for (const char* failing : {"start", "update", "finish"}) {
    CAPTURE(failing);
    Rig rig;
    rig.push("3");
    REQUIRE(rig.pause(PauseMode::wait).ok());
    REQUIRE(rig.submit().ok());
    rig.fake.failing[failing] = ErrorKind::refused;
    const bool started = rig.core->start_update().ok();
    if (started && rig.core->update(Json::object()).ok()) CHECK(rig.core->finish_update("4").status == 500);
    CHECK(rig.core->version() == "3");
    CHECK(rig.results.size() == 1);
    CHECK(holds(rig.results.at(0).error, "went wrong"));
    CHECK(rig.core->finish_update("4").error == "finish_weight_update called without a matching start_weight_update.");
    CHECK(rig.core->resume().status == 409);
    CHECK(holds(rig.core->resume().error, "incomplete"));
    CHECK(rig.submit().status == 409);
    CHECK_FALSE(rig.core->failed());
    std::map<std::string, uint64_t> sums;
    CHECK(rig.core->checksums(sums).status == 409);
    CHECK(rig.core->set_version("4").status == 409);

    rig.fake.failing.clear();
    rig.push("5");
    REQUIRE(rig.core->resume().ok());
    REQUIRE(rig.submit().ok());
    rig.run();
    CHECK(rig.results.size() == 2);
    CHECK(rig.results.back().choices.at(0).versions.at(0).version == "5");
  }
}

TEST_CASE("an engine that never got weights refuses to generate until the first push") {
  Rig rig(false);
  const Verdict refused = rig.submit();
  CHECK(refused.status == 409);
  CHECK(holds(refused.error, "never pushed"));
  rig.push("1");
  REQUIRE(rig.submit().ok());
  rig.run();
  CHECK(rig.results.size() == 1);
}

TEST_CASE("an update is refused while requests are in flight and the engine is not paused") {
  Rig rig;
  REQUIRE(rig.submit().ok());
  const Verdict refused = rig.core->start_update();
  CHECK(refused.status == 409);
  CHECK(holds(refused.error, "Call /pause first"));
  CHECK(rig.fake.calls.empty());
  REQUIRE(rig.pause(PauseMode::keep).ok());
  CHECK(rig.core->start_update().ok());
  CHECK(rig.core->resume().status == 409);
}

TEST_CASE("requests that come during an update of an engine that is not paused wait for its end") {
  Rig rig;
  rig.push("1");
  REQUIRE(rig.core->start_update().ok());
  REQUIRE(rig.submit().ok());
  CHECK_FALSE(rig.core->step());
  REQUIRE(rig.core->finish_update("2").ok());
  rig.run();
  CHECK(rig.results.at(0).choices.at(0).versions.at(0).version == "2");
}

TEST_CASE("pause with wait answers when the running sequences have finished and leaves the queued ones") {
  Rig rig(true, 1);
  REQUIRE(rig.submit(3).ok());
  REQUIRE(rig.submit(3).ok());
  REQUIRE(rig.core->step());
  Verdict seen{0, ""};
  rig.core->pause(PauseMode::wait, true, [&](const Verdict& verdict) {
    CHECK(rig.results.size() == 1);
    seen = verdict;
  });
  CHECK(seen.status == 0);
  CHECK_FALSE(rig.core->is_paused());
  CHECK(rig.core->resume().status == 500);
  CHECK(rig.core->start_update().status == 409);
  rig.run();
  CHECK(seen.status == 200);
  CHECK(rig.core->is_paused());
  CHECK(rig.results.size() == 1);
  REQUIRE(rig.core->resume().ok());
  rig.run();
  CHECK(rig.results.size() == 2);
}

TEST_CASE("a pause that waits is answered by a later abort and by a later keep") {
  for (const PauseMode mode : {PauseMode::abort, PauseMode::keep}) {
    Rig rig(true, 1);
    REQUIRE(rig.submit(50).ok());
    REQUIRE(rig.core->step());
    int answers = 0;
    rig.core->pause(PauseMode::wait, true, [&](const Verdict& verdict) { answers += verdict.ok() ? 1 : 0; });
    CHECK(answers == 0);
    CHECK(rig.pause(mode, false).ok());
    CHECK(answers == 1);
    CHECK(rig.core->is_paused());
  }
}

TEST_CASE("level 2 sleep needs a push before anything runs, level 1 does not") {
  Rig rig;
  rig.push("1");
  REQUIRE(rig.sleep(1).ok());
  CHECK(rig.core->is_sleeping());
  REQUIRE(rig.submit().ok());
  CHECK_FALSE(rig.core->step());
  CHECK(rig.core->start_update().status == 409);
  REQUIRE(rig.core->wake({true, false, false}).ok());
  CHECK(rig.core->is_sleeping());
  CHECK_FALSE(rig.core->step());
  REQUIRE(rig.core->wake({false, true, false}).ok());
  CHECK_FALSE(rig.core->is_sleeping());
  rig.run();
  CHECK(rig.results.size() == 1);

  REQUIRE(rig.sleep(2).ok());
  CHECK(rig.fake.slept_level == 2);
  REQUIRE(rig.submit().ok());
  REQUIRE(rig.core->wake({true, false, false}).ok());
  REQUIRE(rig.pause(PauseMode::wait).ok());
  CHECK(rig.core->resume().status == 409);
  rig.push("2");
  REQUIRE(rig.core->wake({false, true, false}).ok());
  REQUIRE(rig.core->resume().ok());
  rig.run();
  CHECK(rig.results.size() == 2);
  CHECK(rig.results.back().choices.at(0).versions.at(0).version == "2");
  CHECK(rig.fake.woken ==
        std::vector<std::pair<bool, bool>>{{true, false}, {false, true}, {true, false}, {false, true}});
}

TEST_CASE("level 0 sleep stops scheduling only") {
  Rig rig;
  REQUIRE(rig.sleep(0).ok());
  CHECK(rig.core->is_paused());
  CHECK(rig.fake.calls.empty());
  REQUIRE(rig.submit().ok());
  CHECK_FALSE(rig.core->step());
  REQUIRE(rig.core->wake({false, false, true}).ok());
  rig.run();
  CHECK(rig.results.size() == 1);
}

TEST_CASE("a worker that is gone during an update fails the engine, not only the session") {
  Rig rig;
  rig.fake.failing["start"] = ErrorKind::process_failed;
  CHECK(rig.core->start_update().status == 500);
  CHECK(rig.core->failed());
  CHECK(rig.submit().status == 500);
  CHECK(rig.pause(PauseMode::abort).status == 500);
}

TEST_CASE("reload makes incomplete weights whole again") {
  Rig rig;
  rig.push("1");
  rig.fake.failing["update"] = ErrorKind::refused;
  REQUIRE(rig.core->start_update().ok());
  REQUIRE_FALSE(rig.core->update(Json::object()).ok());
  REQUIRE(rig.core->reload("").ok());
  CHECK(rig.fake.reloaded == "/models/m");
  CHECK(rig.submit().ok());
}
