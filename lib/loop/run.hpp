// `vime run`: an experiment from its spec to its final checkpoint.
#pragma once

#include <string>

#include "base/files.hpp"
#include "spec/spec.hpp"

namespace vime::loop {

struct RunOptions {
  spec::ExperimentSpec spec;
  fs::path run_dir;
  bool resume = false;      // go on from the newest whole checkpoint of run_dir, or from the start where it has none
  bool quiet = false;       // no progress line and no closing summary
  std::string vime_binary;  // starts agent, trainer ranks and engines
};

// Runs to the end and returns the exit status; summary.json says the same. Throws Error only before anything was
// started.
int execute_run(const RunOptions& options);

}  // namespace vime::loop
