// Whether engines that cannot tell what they hold compute with the weights that they were pushed: log-probs of a few
// fixed sequences, from the trainer and from every engine. One thread.
//
// An engine that holds the right weights is off by its arithmetic alone. One that holds a part of them, or parts in
// wrong places, is off by as much as log-probs differ among themselves. One that has stayed on the weights before moved
// less, since the push before, than the trainer did; that shows even where the step was small.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "fleet/fleet.hpp"
#include "loop/trainer_group.hpp"

namespace vime::loop {

struct ProbeOptions {
  std::string run_id;
  fs::path folder;  // where the sequences are written for the trainer ranks
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  // of the engines: most tokens of a sequence and one more
  int data_parallel_size = 1;
  double gap_tolerance = 0.0;  // of the mean difference
};

// [tokens] each; `before` of the push before, empty when there was none.
struct ProbeValues {
  std::vector<double> now, before;
};
struct EngineProblem {
  std::string text;            // "" = none
  bool of_arithmetic = false;  // the weights may be right, and the engine compute too differently
};
EngineProblem probe_problem(const ProbeValues& trainer, const ProbeValues& engine, double gap_tolerance);

class LogprobProbe {
 public:
  LogprobProbe(fleet::Fleet& fleet, TrainerGroup& trainers, ProbeOptions options);
  ~LogprobProbe();
  LogprobProbe(const LogprobProbe&) = delete;
  LogprobProbe& operator=(const LogprobProbe&) = delete;

  // The trainer's part, of the weights that are about to be pushed.
  void ask_trainer();
  // The engines' part, when they generate again. One for each engine that is wrong, with its name.
  std::vector<EngineProblem> ask_engines();

 private:
  fs::path batch() const;
  int64_t tokens() const;  // of a sequence
  void choose_sequences();

  fleet::Fleet& fleet_;
  TrainerGroup& trainers_;
  ProbeOptions options_;
  std::vector<std::vector<int64_t>> sequences_;
  ProbeValues trainer_;
  std::map<int, ProbeValues> engines_;
};

}  // namespace vime::loop
