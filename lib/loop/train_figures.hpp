// The trainer ranks' answers to /train as figures of the run: shares added in rank order, means over the optimizer
// steps of a rollout, and what the self-checks say of each step. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "loop/checks.hpp"

namespace vime::loop {

struct TrainFigures {
  Json metrics = Json::object();  // "train/..." names; means over the rollout's steps, "train/nonfinite_steps" a sum
  int64_t optimizer_steps = 0;
  int64_t nonfinite_steps = 0;        // whose gradient was not finite: the weights stayed
  std::vector<std::string> problems;  // one sentence per fault, with the step it is of
};

// replies: by rank. rollout_id: for the sentences.
TrainFigures train_figures(const std::vector<Json>& replies, int64_t rollout_id, const CheckLimits& limits,
                           const ChecksOn& on);

// The most memory that any of the ranks held at a time since the command before: weights and what LibTorch had out.
uint64_t peak_memory(const std::vector<Json>& replies);

}  // namespace vime::loop
