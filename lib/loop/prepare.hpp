// Everything about a run that can be known before anything is started: plan, tokenizer, model, prompts and lengths.
// What can be refused is refused here. Reads files, writes none; takes as long as reading and tokenizing the prompts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "base/files.hpp"
#include "data/data_source.hpp"
#include "placement/placement.hpp"
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

// The section "reward" as the reward room takes it; the logs of reward workers go to `log_folder`.
reward::RewardOptions reward_options(const spec::ExperimentSpec& spec, const fs::path& log_folder);

}  // namespace vime::loop
