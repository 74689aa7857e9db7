// `vime check-parallel sweep`: the baselines and then every leg, as many at a time as the plan says.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/files.hpp"
#include "sweep/plan.hpp"
#include "sweep/result.hpp"

namespace vime::sweep {

struct SweepOptions {
  fs::path run_dir;   // `keep`: not there yet or empty; otherwise one with a number behind it may be taken
  bool keep = false;  // every leg's folder; otherwise only those of legs that failed stay
  std::optional<std::string> json_path;  // where the result goes as JSON
  std::string vime_binary;
  std::string vime_version;
  std::function<void(const std::string&)> print;  // takes the table, line by line
};

// Throws Error only before anything was started; what goes wrong afterwards is in the result. The user's first Ctrl-C
// ends the present legs' processes, and all that was not finished is not_run. Rows are printed as legs finish, by
// whichever thread ran the leg, one at a time; the result has the legs in the plan's order.
SweepResult execute_sweep(const SweepPlan& plan, const SweepOptions& options);

}  // namespace vime::sweep
