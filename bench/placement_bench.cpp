// How long a plan takes and how large it is, against the number of devices: nodes of 8, TP 8, engines of 2, half of the
// nodes for the trainer and engines on all of them, so that half of the engines are led and half are fed over the
// network.
//   placement_bench [devices=1024 4096 10000 40000 100000]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "base/deadline.hpp"
#include "spec/placement_request.hpp"
#include "spec/plan_view.hpp"

namespace {

using namespace vime;

spec::ExperimentSpec spec_for(int devices) {
  spec::ExperimentSpec spec;
  const int nodes = devices / 8;
  spec.placement.nodes.assign(static_cast<size_t>(nodes), 8);
  spec.placement.colocate = true;
  spec.placement.actor_num_nodes = nodes / 2;
  spec.placement.actor_num_gpus_per_node = 8;
  spec.placement.rollout_num_gpus = devices;
  spec.placement.rollout_num_gpus_per_engine = 2;
  spec.trainer.tensor_model_parallel_size = 8;
  return spec;
}

void bench(int devices) {
  const spec::ExperimentSpec spec = spec_for(devices);
  const placement::Request request = spec::placement_request(spec, "bench");
  constexpr int kTimes = 5;
  double best_plan = 1e9, best_json = 1e9, best_table = 1e9;
  size_t json_bytes = 0, table_bytes = 0, led = 0;
  for (int i = 0; i < kTimes; ++i) {
    const auto start = SteadyClock::now();
    const placement::Plan plan = placement::make_plan(request);
    best_plan = std::min(best_plan, seconds_since(start));
    led = plan.slots.size();
    const auto json_start = SteadyClock::now();
    json_bytes = spec::plan_json(spec, plan, {}, true).dump(2).size();
    best_json = std::min(best_json, seconds_since(json_start));
    const auto table_start = SteadyClock::now();
    table_bytes = spec::plan_table(spec, plan).size();
    best_table = std::min(best_table, seconds_since(table_start));
  }
  std::printf("%6d devices, %5zu slots: plan %.2f ms (%.0f ns a device), JSON %.1f ms %.2f MB, table %.2f ms %zu B\n",
              devices, led, 1e3 * best_plan, 1e9 * best_plan / devices, 1e3 * best_json,
              1e-6 * static_cast<double>(json_bytes), 1e3 * best_table, table_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<int> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
    if (sizes.empty()) sizes = {1024, 4096, 10000, 40000, 100000};
    for (const int devices : sizes) bench(devices);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
