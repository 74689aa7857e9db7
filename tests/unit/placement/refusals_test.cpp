#include <doctest/doctest.h>

#include <climits>

#include "base/error.hpp"
#include "placement/placement.hpp"

using namespace vime::placement;

namespace {

// 4 devices, 2 trainer ranks, 1 engine of 2: can be placed.
Request sound() {
  Request made;
  made.nodes = {4};
  made.actor_num_gpus_per_node = 2;
  made.rollout_num_gpus = 2;
  made.rollout_num_gpus_per_engine = 2;
  return made;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The only refusal of this request.
Refusal only(const Request& asked) {
  const std::vector<Refusal> found = refusals(asked);
  std::string all;
  for (const Refusal& refusal : found) all += refusal.key + ": " + refusal.sentence + "\n";
  INFO(all);
  REQUIRE(found.size() == 1);
  return found[0];
}

}  // namespace

TEST_CASE("a request that fits has no refusals") {
  CHECK(refusals(sound()).empty());
}

TEST_CASE("5 of 4 devices are refused with both numbers") {
  Request asked = sound();
  asked.actor_num_gpus_per_node = 5;
  const Refusal refusal = only(asked);
  CHECK(refusal.key == "actor_num_gpus_per_node");
  CHECK(contains(refusal.sentence, "1 x 5 = 5"));
  CHECK(contains(refusal.sentence, "has 4 devices"));

  asked = sound();
  asked.rollout_num_gpus = 5;
  asked.rollout_num_gpus_per_engine = 1;
  CHECK(contains(only(asked).sentence, "rollout_num_gpus = 5 devices, but nodes has 4 devices"));
}

TEST_CASE("without colocation the sum of trainer and engines is compared with the devices") {
  Request asked = sound();
  asked.colocate = false;
  CHECK(refusals(asked).empty());
  asked.nodes = {3};
  CHECK(contains(only(asked).sentence, "2 + 2 = 4 devices of their own"));
}

TEST_CASE("12 devices per engine on nodes of 8 are refused unless engines may span nodes") {
  Request asked = sound();
  asked.nodes = {8, 8};
  asked.actor_num_nodes = 2;
  asked.actor_num_gpus_per_node = 8;
  asked.rollout_num_gpus = 12;
  asked.rollout_num_gpus_per_engine = 12;
  const Refusal refusal = only(asked);
  CHECK(refusal.key == "rollout_num_gpus_per_engine");
  CHECK(contains(refusal.sentence, "= 12 devices"));
  CHECK(contains(refusal.sentence, "has 8"));
  CHECK(contains(refusal.sentence, "allow_engines_across_nodes"));
  asked.allow_engines_across_nodes = true;
  CHECK(refusals(asked).empty());
}

TEST_CASE("an engine that would straddle two nodes is named with its devices") {
  Request asked = sound();
  asked.nodes = {6, 6};
  asked.actor_num_nodes = 1;
  asked.rollout_num_gpus = 12;
  asked.rollout_num_gpus_per_engine = 4;
  const Refusal refusal = only(asked);
  CHECK(contains(refusal.sentence, "engine 1 would take devices 4 to 7, which lie on nodes 0 to 1"));
  CHECK(contains(refusal.sentence, "6 + 6"));
}

TEST_CASE("on nodes of 4, 8 and 2 devices engines of 4 fit the first two nodes only") {
  Request asked = sound();
  asked.nodes = {4, 8, 2};
  asked.actor_num_gpus_per_node = 4;
  asked.rollout_num_gpus_per_engine = 4;
  asked.rollout_num_gpus = 12;
  CHECK(refusals(asked).empty());
  asked.rollout_num_gpus = 16;
  CHECK(contains(only(asked).sentence, "rollout_num_gpus = 16 devices, but nodes has 14 devices (4 + 8 + 2)"));
  asked.rollout_num_gpus_per_engine = 6;
  asked.rollout_num_gpus = 12;
  CHECK(contains(only(asked).sentence, "engine 0 would take devices 0 to 5"));
}

TEST_CASE("no engines, negative numbers and empty nodes are refused one by one") {
  Request asked = sound();
  asked.rollout_num_gpus = 0;
  CHECK(contains(only(asked).sentence, "rollout_num_gpus is 0; at least 1 is needed"));
  asked = sound();
  asked.actor_num_gpus_per_node = -2;
  asked.rollout_num_gpus_per_engine = 0;
  asked.nodes = {4, 0};
  CHECK(refusals(asked).size() == 3);
  asked = sound();
  asked.nodes = {};
  CHECK(only(asked).key == "nodes");
}

TEST_CASE("rollout devices that are no multiple of the engine's are refused with the nearest multiples") {
  Request asked = sound();
  asked.nodes = {8};
  asked.rollout_num_gpus = 7;
  CHECK(contains(only(asked).sentence, "the nearest are 6 and 8"));
  asked.rollout_num_gpus_per_engine = 8;
  CHECK(only(asked).key == "rollout_num_gpus_per_engine");
  CHECK(contains(only(asked).sentence,
                 "8 devices is larger than all of rollout_num_gpus = 7; choose a number that "
                 "divides 7, or more rollout_num_gpus"));
}

TEST_CASE("a layout that does not divide the ranks is refused with the nearest rank counts") {
  Request asked = sound();
  asked.nodes = {12};
  asked.actor_num_gpus_per_node = 12;
  asked.tensor_model_parallel_size = 4;
  asked.pipeline_model_parallel_size = 2;
  CHECK(contains(
      only(asked).sentence,
      "TP 4 x PP 2 x CP 1 = 8 does not divide the trainer's 12 ranks; the nearest that it divides are 8 and 16"));
}

TEST_CASE("trainer nodes that are not the machine's nodes are refused") {
  Request asked = sound();
  asked.nodes = {4, 8, 2};
  asked.actor_num_gpus_per_node = 8;  // one node of 8, but node 0 has 4
  CHECK(contains(only(asked).sentence, "8 devices on each of its 1 node, but node 0 has 4"));
  asked = sound();
  asked.nodes = {4, 4};
  asked.actor_num_nodes = 2;  // all 4 ranks would lie on node 0
  CHECK(contains(only(asked).sentence, "2 devices on each of its 2 nodes, but node 0 has 4"));
  asked.nodes = {8};
  CHECK(contains(only(asked).sentence, "actor_num_nodes is 2, but nodes lists only 1 node"));
}

TEST_CASE("numbers near the end of int are refused, not wrapped") {
  Request asked = sound();
  asked.actor_num_nodes = INT_MAX;
  asked.actor_num_gpus_per_node = INT_MAX;
  CHECK(contains(only(asked).sentence, "4611686014132420609"));
  asked = sound();
  asked.nodes = {INT_MAX, INT_MAX};
  CHECK(contains(only(asked).sentence, "at most 100000"));
  asked = sound();
  asked.tensor_model_parallel_size = asked.pipeline_model_parallel_size = asked.context_parallel_size = INT_MAX;
  CHECK(only(asked).key == "tensor_model_parallel_size");
}

TEST_CASE("make_plan throws all refusals in one error") {
  Request asked = sound();
  asked.nodes = {3};
  asked.rollout_num_gpus = 5;
  try {
    make_plan(asked);
    FAIL("the request was placed");
  } catch (const vime::Error& error) {
    CHECK(error.kind() == vime::ErrorKind::refused);
    CHECK(contains(error.message(), "but nodes has 3 devices\n"));
    CHECK(contains(error.message(), "no multiple"));
  }
}
