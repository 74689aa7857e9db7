// Whole runs on two GPUs.
#include "gpu/short_runs.hpp"

using namespace vime;
using namespace vime::e2e;

TEST_CASE("disaggregated, tensor parallel, data parallel, pipelined, context parallel, an engine of two") {
  const TempDir folder;
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"apart", {"placement.colocate=false"}},
      {"tp", {"trainer.tensor_model_parallel_size=2"}},
      {"dp", {}},
      {"pp", {"trainer.pipeline_model_parallel_size=2"}},
      {"cp", {"trainer.context_parallel_size=2"}},
      {"engine of two", {"placement.rollout_num_gpus_per_engine=2"}}};
  for (auto [name, overrides] : cases) {
    CAPTURE(name);
    if (name != "apart") {
      overrides.push_back("placement.actor_num_gpus_per_node=2");
      overrides.push_back("placement.rollout_num_gpus=2");
    }
    run(folder.path() / name, overrides);
    CHECK(largest_gap(folder.path() / name) < 0.02);
  }
}
