// Everything a run needs before its first step: plan, run directory, model folder, processes that serve. What can be
// refused is refused before anything is started.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "arch/model_config.hpp"
#include "data/data_source.hpp"
#include "fleet/fleet.hpp"
#include "loop/run_directory.hpp"
#include "loop/trainer_group.hpp"
#include "placement/placement.hpp"
#include "report/records.hpp"
#include "spec/spec.hpp"
#include "text/tokenizer.hpp"

namespace vime::loop {

// What the spec means on this machine, worked out without touching anything.
struct Prepared {
  spec::ExperimentSpec spec;
  std::string run_id;
  placement::Plan plan;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  arch::ModelConfig config;
  std::vector<data::Prompt> prompts;  // of training, without those over the length limit
  int64_t prompts_too_long = 0;
  std::vector<data::Prompt> eval_prompts;  // empty: no evaluation
  int64_t max_model_len = 0;
};

// Error{refused} for whatever cannot work.
Prepared prepare(const spec::ExperimentSpec& spec, const std::string& run_id);

// The running processes. Destroying it ends them all.
class Processes {
 public:
  // Writes the model folder, starts trainer ranks and engines, waits until they serve and have joined their groups.
  Processes(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
            std::function<void(const std::string&, const Json&)> on_event);

  fleet::Supervisor& supervisor() { return supervisor_; }
  fleet::Fleet& fleet() { return *fleet_; }
  TrainerGroup& trainers() { return *trainers_; }
  void shutdown() { supervisor_.shutdown(std::chrono::milliseconds(2000)); }

 private:
  std::string token_;
  http::Client client_;
  fleet::Supervisor supervisor_;
  std::unique_ptr<TrainerGroup> trainers_;
  std::unique_ptr<fleet::Fleet> fleet_;
};

}  // namespace vime::loop
