// Every small request is placed a second time from the words of the rules, with sets of devices instead of arithmetic,
// and compared.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "placement/placement.hpp"

using namespace vime::placement;

namespace {

struct Expected {
  bool placeable = true;
  std::vector<std::set<int>> engines;  // devices
  std::vector<bool> colocated;
};

// Devices are dealt from a list, one at a time.
Expected expect(const Request& asked) {
  std::vector<int> node_of;
  for (size_t node = 0; node < asked.nodes.size(); ++node)
    node_of.insert(node_of.end(), static_cast<size_t>(asked.nodes[node]), static_cast<int>(node));
  Expected expected;

  std::set<int> trainer;
  for (int node = 0; node < asked.actor_num_nodes; ++node) {
    for (int i = 0; i < asked.actor_num_gpus_per_node; ++i) {
      const size_t device = trainer.size();
      // The n-th trainer node is the n-th node of the machine.
      if (device >= node_of.size() || node_of[device] != node) expected.placeable = false;
      trainer.insert(static_cast<int>(device));
    }
  }
  const int model = asked.tensor_model_parallel_size * asked.pipeline_model_parallel_size * asked.context_parallel_size;
  if (trainer.size() % static_cast<size_t>(model) != 0) expected.placeable = false;

  int next = asked.colocate ? 0 : static_cast<int>(trainer.size());
  bool some_engine_sticks_out = false;
  int left = asked.rollout_num_gpus;
  for (; left >= asked.rollout_num_gpus_per_engine; left -= asked.rollout_num_gpus_per_engine) {
    std::set<int> devices, nodes;
    for (int i = 0; i < asked.rollout_num_gpus_per_engine; ++i, ++next) {
      devices.insert(next);
      if (next >= static_cast<int>(node_of.size())) {
        expected.placeable = false;
      } else {
        nodes.insert(node_of[static_cast<size_t>(next)]);
      }
    }
    if (nodes.size() > 1 && !asked.allow_engines_across_nodes) expected.placeable = false;
    const bool inside = std::includes(trainer.begin(), trainer.end(), devices.begin(), devices.end());
    some_engine_sticks_out = some_engine_sticks_out || !inside;
    expected.colocated.push_back(!some_engine_sticks_out);
    expected.engines.push_back(devices);
  }
  if (left != 0) expected.placeable = false;
  return expected;
}

// Number of differences between the plan and what was expected.
int differences(const Request& asked) {
  const Expected expected = expect(asked);
  if (refusals(asked).empty() != expected.placeable) return 1;
  if (!expected.placeable) return 0;
  const Plan plan = make_plan(asked);
  int wrong = plan.engines.size() != expected.engines.size();
  size_t slots = 0;
  for (size_t i = 0; i < expected.engines.size() && wrong == 0; ++i) {
    const Engine& engine = plan.engines[i];
    wrong += engine.start != *expected.engines[i].begin();
    wrong += engine.count != static_cast<int>(expected.engines[i].size());
    wrong += engine.colocated != expected.colocated[i];
    if (expected.colocated[i]) {
      // Colocated engines are a prefix, so the i-th slot is the i-th engine's.
      wrong += plan.slots.at(i).leader() != *expected.engines[i].begin();
      for (const TrainerRank& rank : plan.ranks)
        wrong += plan.slots[i].contains(rank.rank) != (expected.engines[i].count(rank.device) > 0);
      ++slots;
    }
  }
  wrong += plan.slots.size() != slots;
  wrong += plan.overflow_engines.size() != expected.engines.size() - slots;
  wrong += plan.layout.dp * plan.layout.tp * plan.layout.pp * plan.layout.cp != static_cast<int>(plan.ranks.size());
  return wrong;
}

std::vector<std::vector<int>> small_inventories() {
  std::vector<std::vector<int>> found;
  for (int a = 1; a <= 4; ++a) {
    found.push_back({a});
    for (int b = 1; b <= 4; ++b) {
      found.push_back({a, b});
      for (int c = 1; c <= 3; ++c) found.push_back({a, b, c});
    }
  }
  return found;
}

}  // namespace

TEST_CASE("all small requests are placed or refused as the rules say") {
  long requests = 0, placed = 0, wrong = 0;
  for (const std::vector<int>& nodes : small_inventories()) {
    for (int code = 0; code < 2 * 2 * 3 * 4 * 9 * 4 * 2; ++code) {
      int rest = code;
      const auto digit = [&rest](int base) {
        const int value = rest % base;
        rest /= base;
        return value;
      };
      Request asked;
      asked.nodes = nodes;
      asked.colocate = digit(2) == 1;
      asked.allow_engines_across_nodes = digit(2) == 1;
      asked.actor_num_nodes = 1 + digit(3);
      asked.actor_num_gpus_per_node = 1 + digit(4);
      asked.rollout_num_gpus = 1 + digit(9);
      asked.rollout_num_gpus_per_engine = 1 + digit(4);
      asked.tensor_model_parallel_size = 1 + digit(2);
      ++requests;
      wrong += differences(asked);
      placed += refusals(asked).empty();
    }
  }
  CHECK(wrong == 0);
  // The comparison would be empty if everything were refused.
  CHECK(requests == 68L * 3456);
  CHECK(placed > 5000);
}
