#include "placement/placement.hpp"

#include <doctest/doctest.h>

#include <regex>
#include <set>

using namespace vime::placement;

namespace {

Request request(std::vector<int> nodes, bool colocate, int actor_nodes, int actor_gpus, int rollout, int span) {
  Request made;
  made.nodes = std::move(nodes);
  made.colocate = colocate;
  made.actor_num_nodes = actor_nodes;
  made.actor_num_gpus_per_node = actor_gpus;
  made.rollout_num_gpus = rollout;
  made.rollout_num_gpus_per_engine = span;
  made.run_id = "test";
  return made;
}

}  // namespace

TEST_CASE("two ranks and one engine over both devices: rank 0 leads the only slot") {
  const Plan plan = make_plan(request({2}, true, 1, 2, 2, 2));
  REQUIRE(plan.devices.size() == 2);
  CHECK(plan.layout.dp == 2);
  REQUIRE(plan.engines.size() == 1);
  CHECK(plan.engines[0].colocated);
  REQUIRE(plan.slots.size() == 1);
  CHECK(plan.slots[0].leader() == 0);
  CHECK(plan.slots[0].contains(0));
  CHECK(plan.slots[0].contains(1));
  CHECK_FALSE(plan.slots[0].contains(2));
  CHECK(plan.overflow_engines.empty());
}

TEST_CASE("without colocation the engines lie behind the trainer and all get weights over the network") {
  const Plan plan = make_plan(request({4}, false, 1, 2, 2, 1));
  REQUIRE(plan.engines.size() == 2);
  CHECK(plan.engines[0].start == 2);
  CHECK(plan.engines[1].start == 3);
  CHECK(plan.slots.empty());
  CHECK(plan.overflow_engines == std::vector<int>{0, 1});
}

TEST_CASE("more rollout devices than the trainer has: the engine that sticks out and all after it overflow") {
  // Trainer devices 0..2; engines [0,1], [2,3], [4,5]: the second is half inside.
  const Plan plan = make_plan(request({6}, true, 1, 3, 6, 2));
  REQUIRE(plan.engines.size() == 3);
  CHECK(plan.engines[0].colocated);
  CHECK_FALSE(plan.engines[1].colocated);
  CHECK_FALSE(plan.engines[2].colocated);
  CHECK(plan.slots.size() == 1);
  CHECK(plan.overflow_engines == std::vector<int>{1, 2});
}

TEST_CASE("an engine inside the trainer's devices but behind one that sticks out is overflow too") {
  std::vector<Engine> engines(3);
  engines[0] = {.id = 0, .start = 0, .count = 2, .colocated = false, .nodes = {0}};
  engines[1] = {.id = 1, .start = 3, .count = 2, .colocated = true, .nodes = {0}};
  engines[2] = {.id = 2, .start = 2, .count = 1, .colocated = true, .nodes = {0}};
  mark_colocated(engines, 4);
  CHECK(engines[0].colocated);
  CHECK_FALSE(engines[1].colocated);
  CHECK_FALSE(engines[2].colocated);
  CHECK(make_slots(engines).size() == 1);
}

TEST_CASE("the layout of the trainer does not decide who leads a slot") {
  Request wide = request({8}, true, 1, 8, 8, 2);
  wide.tensor_model_parallel_size = 8;
  Request deep = request({8}, true, 1, 8, 8, 2);
  deep.pipeline_model_parallel_size = 2;
  for (const Request& asked : {wide, deep, request({8}, true, 1, 8, 8, 2)}) {
    const Plan plan = make_plan(asked);
    std::vector<int> leaders;
    for (const Slot& slot : plan.slots) leaders.push_back(slot.leader());
    CHECK(leaders == std::vector<int>{0, 2, 4, 6});
  }
}

TEST_CASE("rank order is tp, then cp, then dp, then pp") {
  const std::vector<TrainerRank> ranks = make_ranks(24, 2, 3, 2);  // dp = 2
  int rank = 0;
  for (int pp = 0; pp < 3; ++pp) {
    for (int dp = 0; dp < 2; ++dp) {
      for (int cp = 0; cp < 2; ++cp) {
        for (int tp = 0; tp < 2; ++tp, ++rank) {
          const TrainerRank& got = ranks[static_cast<size_t>(rank)];
          CHECK(got.rank == rank);
          CHECK(got.device == rank);
          CHECK(got.tp_rank == tp);
          CHECK(got.cp_rank == cp);
          CHECK(got.dp_rank == dp);
          CHECK(got.pp_rank == pp);
        }
      }
    }
  }
}

TEST_CASE("nodes of unequal size keep their own devices") {
  const Plan plan = make_plan(request({4, 8, 2}, true, 2, 4, 14, 2));
  REQUIRE(plan.devices.size() == 14);
  CHECK(plan.devices[3].node == 0);
  CHECK(plan.devices[4].node == 1);
  CHECK(plan.devices[4].index == 0);
  CHECK(plan.devices[11].node == 1);
  CHECK(plan.devices[12].node == 2);
  CHECK(plan.devices[13].index == 1);
  CHECK(plan.slots.size() == 4);  // the trainer has devices 0..7
  CHECK(plan.overflow_engines == std::vector<int>{4, 5, 6});
  for (const Engine& engine : plan.engines) CHECK(engine.nodes.size() == 1);
}

TEST_CASE("an engine spans nodes when that is allowed and says which") {
  Request asked = request({8, 8}, true, 2, 8, 12, 12);
  asked.allow_engines_across_nodes = true;
  const Plan plan = make_plan(asked);
  REQUIRE(plan.engines.size() == 1);
  CHECK(plan.engines[0].nodes == std::vector<int>{0, 1});
  CHECK(plan.slots[0].count == 12);
}

TEST_CASE("UUIDs of CPU devices have CUDA's form and depend on run, node and index alone") {
  const std::string uuid = cpu_device_uuid("run-a", 1, 2);
  CHECK(std::regex_match(uuid, std::regex("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")));
  CHECK(uuid == cpu_device_uuid("run-a", 1, 2));
  std::set<std::string> distinct{uuid, cpu_device_uuid("run-b", 1, 2), cpu_device_uuid("run-a", 2, 1),
                                 cpu_device_uuid("run-a", 1, 3), cpu_device_uuid("", 1, 2)};
  CHECK(distinct.size() == 5);
}
