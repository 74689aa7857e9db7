// How a leg ended. Plain data.
#pragma once

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
  std::string logs;                   // folder of a failed leg's logs, where there is one
  double seconds = 0.0;
};

struct SweepResult {
  std::vector<LegResult> baselines;  // one for each loss that the legs have
  std::vector<LegResult> legs;
  bool interrupted = false;
  double seconds = 0.0;
};

// A sweep passes when every leg was run and passed.
std::string sweep_status(const SweepResult& result);  // "pass", "fail", "interrupted"
int exit_status(const SweepResult& result);           // 0, 3, 130

}  // namespace vime::sweep
