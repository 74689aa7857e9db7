// What a run leaves behind, read back for the tests of whole runs.
#pragma once

#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::e2e {

inline const std::string kQuickstart = VIME_SOURCE_DIR "/configs/quickstart.yaml";
inline const std::string kDisaggregated = VIME_SOURCE_DIR "/configs/disaggregated.yaml";

std::vector<Json> read_lines(const fs::path& jsonl);
Json read_json(const fs::path& path);

// metrics.jsonl without the figures that are times.
std::vector<Json> timeless_metrics(const fs::path& run_dir);
std::string final_weights(const fs::path& run_dir);  // the bytes of checkpoints/latest/model/model.safetensors

// The run's id out of events.jsonl; waits until it stands there.
std::string run_id_of(const fs::path& run_dir);
// Waits until the run has finished at least so many steps.
void wait_for_steps(const fs::path& run_dir, size_t steps);

// Processes whose command line carries the run id, and the first whose title begins with `title`.
std::vector<int> processes_of(const std::string& run_id);
int find_process(const std::string& run_id, const std::string& title);
// Whether all processes of the run are gone within 5 seconds.
bool all_gone(const std::string& run_id);

}  // namespace vime::e2e
