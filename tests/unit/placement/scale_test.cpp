// Plans for 1,024 and 10,000 devices, looked at device by device. How long they take is bench/placement_bench.cpp's
// question.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <tuple>

#include "placement/placement.hpp"

using namespace vime::placement;

namespace {

constexpr int kDevicesPerNode = 8;

enum class Kind { colocated, disaggregated, mixed };

// Nodes of 8 devices. Disaggregated and mixed trainers have the first half of the nodes; mixed engines begin on the
// trainer's devices and go on behind them.
Request request(int devices, Kind kind, int span, const Layout& layout) {
  const int nodes = devices / kDevicesPerNode;
  Request made;
  made.nodes.assign(static_cast<size_t>(nodes), kDevicesPerNode);
  made.colocate = kind != Kind::disaggregated;
  made.actor_num_nodes = kind == Kind::colocated ? nodes : nodes / 2;
  made.actor_num_gpus_per_node = kDevicesPerNode;
  made.rollout_num_gpus = kind == Kind::disaggregated ? (nodes - nodes / 2) * kDevicesPerNode : devices;
  made.rollout_num_gpus_per_engine = span;
  made.tensor_model_parallel_size = layout.tp;
  made.pipeline_model_parallel_size = layout.pp;
  made.context_parallel_size = layout.cp;
  made.run_id = "scale";
  return made;
}

std::vector<Plan> plans_of(int devices) {
  std::vector<Plan> plans;
  const Layout layouts[] = {{.tp = 1, .pp = 1, .cp = 1}, {.tp = 8, .pp = 1, .cp = 1},  {.tp = 2, .pp = 2, .cp = 2},
                            {.tp = 4, .pp = 1, .cp = 2}, {.tp = 1, .pp = 8, .cp = 1},  {.tp = 8, .pp = 16, .cp = 4},
                            {.tp = 2, .pp = 4, .cp = 5}, {.tp = 8, .pp = 25, .cp = 1}, {.tp = 1, .pp = 1, .cp = 8}};
  for (const Kind kind : {Kind::colocated, Kind::disaggregated, Kind::mixed}) {
    for (const int span : {1, 2, 8}) {
      for (const Layout& layout : layouts) {
        const Request asked = request(devices, kind, span, layout);
        const int ranks = asked.actor_num_nodes * asked.actor_num_gpus_per_node;
        if (ranks % (layout.tp * layout.pp * layout.cp) == 0) plans.push_back(make_plan(asked));
      }
    }
  }
  return plans;
}

// Calls `check` with each plan.
template <typename Check>
void for_each_plan(Check check) {
  for (const int devices : {1024, 10000}) {
    const std::vector<Plan> plans = plans_of(devices);
    CHECK(plans.size() >= 63);  // 7 layouts at least divide the ranks of every kind
    for (const Plan& plan : plans) {
      CAPTURE(devices);
      CAPTURE(plan.layout.tp);
      CAPTURE(plan.layout.pp);
      CAPTURE(plan.layout.cp);
      CAPTURE(plan.engines.size());
      CAPTURE(plan.slots.size());
      REQUIRE(plan.devices.size() == static_cast<size_t>(devices));
      check(plan);
    }
  }
}

}  // namespace

TEST_CASE("at 1,024 and 10,000 devices each has an owner, and at most one rank and one engine worker") {
  for_each_plan([](const Plan& plan) {
    std::vector<int> ranks(plan.devices.size()), workers(plan.devices.size());
    for (const TrainerRank& rank : plan.ranks) ++ranks.at(static_cast<size_t>(rank.device));
    for (const Engine& engine : plan.engines) {
      for (int device = engine.start; device < engine.start + engine.count; ++device)
        ++workers.at(static_cast<size_t>(device));
    }
    size_t wrong = 0;
    std::set<std::string> uuids;
    for (size_t device = 0; device < plan.devices.size(); ++device) {
      wrong += ranks[device] > 1 || workers[device] > 1 || ranks[device] + workers[device] == 0;
      uuids.insert(plan.devices[device].uuid);
    }
    CHECK(wrong == 0);
    CHECK(uuids.size() == plan.devices.size());
  });
}

TEST_CASE("at 1,024 and 10,000 devices an engine has exactly one leader or is exactly once in the overflow list") {
  for_each_plan([](const Plan& plan) {
    std::map<int, int> led, overflow;  // by engine id
    std::set<int> leaders;
    size_t wrong = 0;
    for (const Slot& slot : plan.slots) {
      ++led[slot.engine];
      leaders.insert(slot.leader());
      const Engine& engine = plan.engines.at(static_cast<size_t>(slot.engine));
      wrong += slot.start != engine.start || slot.count != engine.count || !slot.contains(slot.leader());
      wrong += slot.start + slot.count > static_cast<int>(plan.ranks.size());
    }
    for (const int id : plan.overflow_engines) ++overflow[id];
    for (const Engine& engine : plan.engines) wrong += led[engine.id] + overflow[engine.id] != 1;
    CHECK(wrong == 0);
    CHECK(leaders.size() == plan.slots.size());
    CHECK(plan.slots.size() + plan.overflow_engines.size() == plan.engines.size());
  });
}

TEST_CASE("at 1,024 and 10,000 devices no engine straddles nodes") {
  for_each_plan([](const Plan& plan) {
    size_t wrong = 0;
    for (const Engine& engine : plan.engines) {
      const Device& first = plan.devices.at(static_cast<size_t>(engine.start));
      const Device& last = plan.devices.at(static_cast<size_t>(engine.start + engine.count - 1));
      wrong += first.node != last.node || engine.nodes != std::vector<int>{first.node};
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("at 1,024 and 10,000 devices the ranks' coordinates are unique and complete") {
  for_each_plan([](const Plan& plan) {
    const Layout& layout = plan.layout;
    std::set<std::tuple<int, int, int, int>> coordinates;
    size_t outside = 0;
    for (const TrainerRank& rank : plan.ranks) {
      coordinates.insert({rank.tp_rank, rank.pp_rank, rank.cp_rank, rank.dp_rank});
      outside += rank.tp_rank < 0 || rank.tp_rank >= layout.tp || rank.pp_rank < 0 || rank.pp_rank >= layout.pp ||
                 rank.cp_rank < 0 || rank.cp_rank >= layout.cp || rank.dp_rank < 0 || rank.dp_rank >= layout.dp;
    }
    CHECK(outside == 0);
    CHECK(coordinates.size() == plan.ranks.size());
    CHECK(plan.ranks.size() == static_cast<size_t>(layout.tp * layout.pp * layout.cp * layout.dp));
  });
}
