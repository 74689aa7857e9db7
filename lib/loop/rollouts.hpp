// Where a step's training batch comes from: generated and scored, loaded from an earlier run, or made of the data set's
// labels. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/data_source.hpp"
#include "loop/checkpoint.hpp"
#include "loop/generate.hpp"
#include "loop/processes.hpp"
#include "loop/run_directory.hpp"
#include "rollout/sample.hpp"
#include "rollout/train_batch.hpp"

namespace vime::loop {

// Different streams of random numbers out of one seed.
inline constexpr uint64_t kRolloutStream = 1, kEvalStream = 2, kDataStream = 3;

struct Rollout {
  fs::path batch;                 // for the trainer ranks
  Json metrics = Json::object();  // "rollout/...", "perf/..."
  double raw_reward = 0.0;        // NaN where nothing was scored
};

class Rollouts {
 public:
  // Takes the training prompts out of `prepared`.
  Rollouts(Prepared& prepared, const RunDirectory& directory, Processes& processes);

  // The batch of rollout `state.step`; moves the state's data position and counters on. Error{process_failed} when too
  // many samples have no reward.
  Rollout next(LoopState& state, int64_t weight_version);

 private:
  Rollout generated(LoopState& state, int64_t weight_version);
  Rollout labelled(LoopState& state, int64_t weight_version);
  Rollout loaded(const LoopState& state);
  std::vector<data::Prompt> next_prompts(LoopState& state);
  fs::path keep(int64_t rollout_id, const std::vector<rollout::Sample>& samples, const rollout::TrainBatch& batch);

  const Prepared& prepared_;
  const spec::ExperimentSpec& spec_;
  const RunDirectory& directory_;
  Processes& processes_;
  std::unique_ptr<data::DataSource> source_;  // null where rollouts are loaded
};

// What engines and rewards of these processes need for samples of `seed` by weights of this version.
GenerateContext generate_context(const Prepared& prepared, Processes& processes, uint64_t seed, int64_t weight_version);

// A prompt and its label as a sample to train on: the label's tokens and the end token, if there is one, are the
// response.
rollout::Sample labelled_sample(const text::Tokenizer& tokenizer, std::optional<int64_t> end_token,
                                const data::Prompt& prompt, int64_t most_tokens);

// Error{refused} when `folder` has rollouts already.
void require_no_rollouts(const fs::path& folder);
// Error{refused} unless `folder` has the rollouts 0 ... count - 1.
void require_rollouts(const fs::path& folder, int64_t count);

}  // namespace vime::loop
