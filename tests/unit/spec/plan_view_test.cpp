#include "spec/plan_view.hpp"

#include <algorithm>

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
  CHECK(json["ranks"][1]["first_layer"].is_null());
}

TEST_CASE("the table counts the ranks and engine workers of each node") {
  const ExperimentSpec spec =
      sound_with({"placement.nodes=[2, 4]", "placement.rollout_num_gpus=6", "placement.rollout_num_gpus_per_engine=2"});
  const std::string table = plan_table(spec, plan_of(spec));
  CHECK(contains(table, "  node 0  devices 0-1  2 trainer ranks  2 engine workers\n"));
  CHECK(contains(table, "  node 1  devices 2-5  0 trainer ranks  4 engine workers\n"));
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

TEST_CASE("memory counts weights, gradients and a share of two moments, and the engine's share of weights") {
  const vime::arch::ModelConfig model = vime::arch::preset("tiny", 13);
  const ExperimentSpec one = sound_with({}), two = sound_with({"placement.rollout_num_gpus_per_engine=2"});
  uint64_t elements = 0;
  // Independent of the arena: hidden 64, intermediate 128, 2 layers, 8 heads and 4 key/value heads of 16, vocabulary
  // 13, own head.
  elements += 2 * 13 * 64 + 64;
  elements += 2 * (2 * 64 + 128 * 64 + 2 * 64 * 64 + 64 * 128 + 2 * 16 + 3 * 64 * 128);
  const ModelPlan whole = model_plan(one, model);
  // Every tensor begins at a multiple of 64 bytes, which adds a little.
  CHECK(whole.engine_bytes >= 4 * elements);
  CHECK(whole.engine_bytes < 4 * elements + 64 * 32);
  REQUIRE(whole.trainers.size() == 1);
  REQUIRE(whole.trainers[0].size() == 1);
  CHECK(whole.trainers[0][0].weights_bytes == whole.engine_bytes);
  CHECK(whole.trainers[0][0].gradients_bytes == whole.engine_bytes);
  // Two moments, shared by the two data-parallel ranks.
  CHECK(whole.trainers[0][0].optimizer_bytes == whole.engine_bytes);
  CHECK(model_plan(two, model).engine_bytes < whole.engine_bytes);
  CHECK(model_plan(sound_with({"trainer.optimizer=sgd"}), model).trainers[0][0].optimizer_bytes == 0);
}

TEST_CASE("every rank's layers and memory are those of its stage and shard") {
  vime::arch::ModelConfig model = vime::arch::preset("tiny", 13);
  model.num_hidden_layers = 3;
  const ExperimentSpec spec = sound_with({"placement.actor_num_gpus_per_node=8", "trainer.tensor_model_parallel_size=2",
                                          "trainer.pipeline_model_parallel_size=2", "trainer.context_parallel_size=2"});
  const vime::Json json = plan_json(spec, plan_of(spec), model_plan(spec, model), false);
  REQUIRE(json["ranks"].size() == 8);
  uint64_t largest = 0;
  for (const vime::Json& rank : json["ranks"]) {
    const int pp = rank["pp"];
    CHECK(pp == (rank["rank"].get<int>() < 4 ? 0 : 1));
    CHECK(rank["first_layer"] == (pp == 0 ? 0 : 2));
    CHECK(rank["num_layers"] == (pp == 0 ? 2 : 1));
    const auto arena =
        vime::arch::arena_layout(model, vime::tensor::DType::f32, rank["tp"], 2, vime::arch::stage_of(model, pp, 2));
    const vime::Json& memory = rank["memory_bytes"];
    CHECK(memory["weights"] == arena.total_bytes);
    CHECK(memory["gradients"] == arena.total_bytes);
    CHECK(memory["optimizer"] == arena.total_bytes);  // two moments over CP 2 x DP 1
    largest = std::max(largest, 3 * arena.total_bytes);
  }
  CHECK(json["memory_bytes"]["trainer_rank"] == largest);
  const std::string table = plan_table(spec, plan_of(spec), model_plan(spec, model));
  CHECK(contains(table, "TP 2 x PP 2 x CP 2 x DP 1, float32, adam\n"));
  CHECK(contains(table, "  stage 1  layer 2     ranks 4-7  "));
  CHECK(contains(table, "  rank 5  device 5  node 0  tp 1  pp 1  cp 0  dp 0  layer 2     "));
}

TEST_CASE("the table of 10,000 ranks stays short and shows every stage") {
  vime::arch::ModelConfig model = vime::arch::preset("tiny", 13);
  model.num_hidden_layers = 16;
  ExperimentSpec spec = sound_with(
      {"placement.actor_num_nodes=1250", "placement.actor_num_gpus_per_node=8", "rollout.rollout_batch_size=5000"});
  spec.trainer.pipeline_model_parallel_size = 16;  // more than the preset has layers
  const std::string table = plan_table(spec, plan_of(spec), model_plan(spec, model));
  CHECK(vime::split(table, '\n').size() < 150);
  CHECK(contains(table, "stage 15  layer 15  ranks 9375-9999"));
  CHECK(contains(table, "... and 9968 ranks more (--json lists all)"));
}
