// Whole runs in layouts of two and of four devices, on GPUs of their own as far as these go, else on shares of them.
#include "gpu/device.hpp"
#include "gpu/short_runs.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

struct Layout {
  std::string name;
  int trainer_devices = 2;
  int engine_devices = 0;  // of engines that have their own; 0: they share the trainer's
  std::vector<std::string> overrides;
};

void run_in(const Layout& layout) {
  CAPTURE(layout.name);
  const TempDir folder;
  const int devices = layout.trainer_devices + layout.engine_devices;
  const int per_gpu = (devices + gpu::device_count() - 1) / gpu::device_count();
  const bool apart = layout.engine_devices > 0;
  const int of_engines = apart ? layout.engine_devices : layout.trainer_devices;
  std::vector<std::string> overrides = layout.overrides;
  for (const std::string& one : {"placement.actor_num_gpus_per_node=" + std::to_string(layout.trainer_devices),
                                 "placement.rollout_num_gpus=" + std::to_string(of_engines),
                                 "placement.devices_per_gpu=" + std::to_string(per_gpu),
                                 std::string("placement.colocate=") + (apart ? "false" : "true")}) {
    overrides.push_back(one);
  }
  run(folder.path() / "run", overrides);
  CHECK(largest_gap(folder.path() / "run") < 0.02);
}

const std::string kTp2 = "trainer.tensor_model_parallel_size=2", kPp2 = "trainer.pipeline_model_parallel_size=2",
                  kCp2 = "trainer.context_parallel_size=2", kEngineOf2 = "placement.rollout_num_gpus_per_engine=2";

}  // namespace

TEST_CASE("disaggregated, tensor parallel, data parallel, pipelined, context parallel, an engine of two") {
  for (const Layout& layout : std::vector<Layout>{{"apart", 1, 1, {}},
                                                  {"tp", 2, 0, {kTp2}},
                                                  {"dp", 2, 0, {}},
                                                  {"pp", 2, 0, {kPp2}},
                                                  {"cp", 2, 0, {kCp2}},
                                                  {"engine of two", 2, 0, {kEngineOf2}}}) {
    run_in(layout);
  }
}

TEST_CASE("two ranks that share the model push it to engines on devices of their own, of one worker and of two") {
  for (const Layout& layout : std::vector<Layout>{{"tp to engines of one", 2, 2, {kTp2}},
                                                  {"tp to an engine of two", 2, 2, {kTp2, kEngineOf2}},
                                                  {"pp to engines of one", 2, 2, {kPp2}},
                                                  {"pp to an engine of two", 2, 2, {kPp2, kEngineOf2}}}) {
    run_in(layout);
  }
}

TEST_CASE("four ranks that share the model push it to the engines on their devices") {
  for (const Layout& layout : std::vector<Layout>{{"tp x pp, engines of one", 4, 0, {kTp2, kPp2}},
                                                  {"tp x pp, engines of two", 4, 0, {kTp2, kPp2, kEngineOf2}}}) {
    run_in(layout);
  }
}
