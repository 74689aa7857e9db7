#include "spec/plan_view.hpp"

#include "base/strings.hpp"
#include "spec/placement_request.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

namespace {

vime::placement::Plan plan_of(const ExperimentSpec& spec) {
  return vime::placement::make_plan(placement_request(spec, "run"));
}

}  // namespace

TEST_CASE("the plan's JSON says which engine is led by whom and fed how") {
  const ExperimentSpec spec = sound_with({"placement.rollout_num_gpus=6", "placement.rollout_num_gpus_per_engine=2"});
  const vime::Json json = plan_json(spec, plan_of(spec), std::nullopt, false);
  CHECK(json["nodes"] == vime::Json{6});
  CHECK(json["layout"]["dp"] == 2);
  REQUIRE(json["engines"].size() == 3);
  CHECK(json["engines"][0]["leader"] == 0);
  CHECK(json["engines"][0]["transport"] == "shm");
  CHECK(json["engines"][1]["leader"].is_null());
  CHECK(json["engines"][1]["transport"] == "tcp");
  CHECK(json["engines"][2]["first_device"] == 4);
  CHECK(json["devices"].size() == 6);
  CHECK_FALSE(json["devices"][0].contains("uuid"));
  CHECK(plan_json(spec, plan_of(spec), std::nullopt, true)["devices"][3]["uuid"] ==
        vime::placement::cpu_device_uuid("run", 0, 3));
  CHECK(json["memory_bytes"].is_null());
}

TEST_CASE("a chosen transport holds for all engines") {
  const ExperimentSpec spec = sound_with({"weight_sync.transport=tcp"});
  for (const auto& engine : plan_of(spec).engines) CHECK(transport_of(spec, engine) == "tcp");
}

TEST_CASE("the table lists every rank and engine, and says so when it is cut") {
  const ExperimentSpec spec = sound_with({"placement.nodes=[2]"});
  const std::string table = plan_table(spec, plan_of(spec));
  CHECK(contains(table, "rank 1"));
  CHECK(contains(table, "engine 1"));
  CHECK(contains(table, "leader rank 1 of rank 1"));
  CHECK_FALSE(contains(table, "more (--json"));
  const std::string cut = plan_table(spec, plan_of(spec), std::nullopt, 1);
  CHECK_FALSE(contains(cut, "rank 1 "));
  CHECK(contains(cut, "... and 1 rank more (--json lists all)"));
  for (const std::string& line : vime::split(table, '\n'))
    CHECK(line == line.substr(0, line.find_last_not_of(' ') + 1));
}

TEST_CASE("memory counts weights, gradients and two moments of the whole model, and the engine's share of weights") {
  const vime::arch::ModelConfig model = vime::arch::preset("tiny", 13);
  const ExperimentSpec one = sound_with({}), two = sound_with({"placement.rollout_num_gpus_per_engine=2"});
  uint64_t elements = 0;
  // Independent of the arena: hidden 64, intermediate 128, 2 layers, 8 heads and 4 key/value heads of 16, vocabulary
  // 13, own head.
  elements += 2 * 13 * 64 + 64;
  elements += 2 * (2 * 64 + 128 * 64 + 2 * 64 * 64 + 64 * 128 + 2 * 16 + 3 * 64 * 128);
  const DeviceMemory whole = device_memory(one, model);
  // Every tensor begins at a multiple of 64 bytes, which adds a little.
  CHECK(whole.engine_bytes >= 4 * elements);
  CHECK(whole.engine_bytes < 4 * elements + 64 * 32);
  CHECK(whole.trainer_bytes == 4 * whole.engine_bytes);
  CHECK(device_memory(two, model).engine_bytes < whole.engine_bytes);
}
