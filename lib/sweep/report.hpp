// A sweep for people (a table that grows leg by leg, and what to say at the end) and for scripts (JSON). Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "sweep/result.hpp"

namespace vime::sweep {

// The legs, and how many processes each starts; for `vime check-parallel plan`.
std::string plan_table(const std::vector<Leg>& legs, int gpus_per_engine);
// {"legs": [{"num_gpus", "tp", "pp", "cp", "dp", "loss", "engines"}], "baselines": ["sample_mean", ...], "left_out"}
Json plan_json(const std::vector<Leg>& legs, int gpus_per_engine, const std::vector<std::string>& left_out);

// "left out: PP 4 (2 layers)\n"; "" where nothing was.
std::string left_out_line(const std::vector<std::string>& left_out);

// "2 legs at a time, in the order in which they finish\n"; "" where there is one.
std::string jobs_line(int jobs);

struct Progress {
  size_t done = 0;  // this one included
  size_t all = 0;
  double seconds_left = 0.0;
};

std::string table_head();
// One line, and a failed leg's sentences below it.
std::string table_row(const LegResult& result, const Progress& progress);
std::string baseline_row(const LegResult& result);
// Counts, how close the passes were, the names of legs that were not run, the first line of each failure.
std::string closing(const SweepResult& result);

// {"legs": [{"num_gpus", "tp", "pp", "cp", "dp", "loss", "status", "checks": {name: {"error", "tolerance", "where",
// "status"}}, "failures", "logs", "seconds"}], "baselines": [{"loss", "status", "failures", "logs", "seconds"}],
// "seconds", "status", and every field of Subject}. An error that is not finite is null.
Json to_json(const SweepResult& result);

// Seconds for the legs that are left: those done have taken so long per device.
double seconds_left(const std::vector<LegResult>& done, const std::vector<Leg>& left);

}  // namespace vime::sweep
