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
#include "reward/rewards.hpp"
#include "spec/spec.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace vime::loop {

// Which halves of the loop take place.
struct Parts {
  bool trainers = true;
  bool engines = true;
  bool pushes() const { return trainers && engines; }
};
Parts parts_of(const spec::ExperimentSpec& spec);

// What the spec means on this machine, worked out without touching anything.
struct Prepared {
  spec::ExperimentSpec spec;
  std::string run_id;
  Parts parts;
  fs::path checkpoint;      // that training goes on from; empty: from the start
  fs::path engine_weights;  // a model folder that the engines read themselves; empty: weights come by the first push
  placement::Plan plan;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: prompts are given as they are
  arch::ModelConfig config;
  std::vector<data::Prompt> prompts;  // of training, without those over the length limit
  int64_t prompts_too_long = 0;
  std::string data_fingerprint;                         // of these prompts and their order
  std::vector<std::vector<data::Prompt>> eval_prompts;  // of each of spec.eval.datasets; empty: no evaluation
  int64_t max_model_len = 0;
  std::vector<std::string> notes;  // what a user should hear of, though nothing is wrong
};

// Error{refused} for whatever cannot work.
Prepared prepare(const spec::ExperimentSpec& spec, const std::string& run_id);
// The same for evaluation alone: engines that read the weights of model.path, and no training prompts.
Prepared prepare_evaluation(const spec::ExperimentSpec& spec, const std::string& run_id);

// The running processes. Destroying it ends them all.
class Processes {
 public:
  // Writes the model folder, starts what `prepared.parts` names, waits until it serves and has joined its groups.
  Processes(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
            std::function<void(const std::string&, const Json&)> on_event);

  fleet::Supervisor& supervisor() { return supervisor_; }
  fleet::Fleet& fleet() { return *fleet_; }         // with no engines where there are none
  TrainerGroup& trainers() { return *trainers_; }   // with no ranks where there are none
  reward::Rewards& rewards() { return *rewards_; }  // only where something is generated
  void shutdown();

 private:
  void start_trainers(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary);
  void start_engines(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary);

  std::string token_;
  http::Client client_;
  fleet::Supervisor supervisor_;
  std::unique_ptr<TrainerGroup> trainers_;
  std::unique_ptr<fleet::Fleet> fleet_;
  std::unique_ptr<reward::Rewards> rewards_;
};

}  // namespace vime::loop
