// How a leg ended. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sweep/check.hpp"
#include "sweep/legs.hpp"

namespace vime::sweep {

enum class Status { pass, fail, not_run };
const char* status_name(Status status);  // "pass", "fail", "not_run"

struct LegResult {
  Leg leg;
  Status status = Status::not_run;
  std::vector<Check> checks;          // those that were made, in the order of check_names()
  std::vector<std::string> failures;  // sentences; of a leg that was not run: the reason
  std::string logs;                   // folder of its logs, where that is kept
  double seconds = 0.0;
};

// What was swept, and by what: what a result proves.
struct Subject {
  std::string vime;     // version
  std::string started;  // "2026-11-29T14:02:11Z"
  std::string config;   // "": the built-in spec
  std::vector<std::string> set;
  int64_t seed = 0;
  int rollout_num_gpus_per_engine = 2;
  int devices_per_gpu = 1;
  int jobs = 1;  // legs that ran at the same time
  std::string device;
  std::string model;  // name of a preset, or a folder
  std::vector<std::string> left_out;
};

struct SweepResult {
  Subject subject;
  std::vector<LegResult> baselines;  // one for each loss that the legs have
  std::vector<LegResult> legs;
  bool interrupted = false;
  double seconds = 0.0;
};

// A sweep passes when every leg was run and passed.
std::string sweep_status(const SweepResult& result);  // "pass", "fail", "interrupted"
int exit_status(const SweepResult& result);           // 0, 3, 130

}  // namespace vime::sweep
