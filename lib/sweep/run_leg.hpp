// One leg: starts its trainer ranks and engines, trains the saved samples step by step, pushes after each step, and
// compares everything with the baseline. All processes of a leg have ended when its function returns or throws. One
// thread; blocks for seconds.
#pragma once

#include <string>
#include <vector>

#include "loop/prepare.hpp"
#include "rollout/step_probe.hpp"
#include "rollout/train_batch.hpp"
#include "sweep/baseline.hpp"
#include "sweep/result.hpp"

namespace vime::sweep {

struct LegTask {
  Leg leg;
  loop::Prepared prepared;  // of the leg's spec
  fs::path folder;          // the leg's own; made by it
  std::string vime_binary;
};

// The same for all legs.
struct Samples {
  std::vector<rollout::TrainBatch> batches;  // by step
  std::vector<fs::path> files;               // where they lie
};

// Trains in a single process, without engines. probes: by step. Error for whatever goes wrong, and Error{check_failed}
// for steps that nothing can be held against.
std::vector<StepRecord> train_alone(const LegTask& task, const Samples& samples,
                                    const std::vector<rollout::StepProbe>& probes);

// What is wrong with the leg, a process that will not start included, is in the result. Only the user's interruption is
// thrown: Error{interrupted}.
LegResult run_leg(const LegTask& task, const Samples& samples, const Baseline& baseline);

}  // namespace vime::sweep
