// One response of an engine, with all that later steps need to know of it. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.hpp"

namespace vime::rollout {

enum class SampleState {
  completed,  // the model ended it
  truncated,  // the length limit ended it
  aborted,    // the engine was told to stop it
  failed,     // no usable response or no reward
};
const char* state_name(SampleState state);
SampleState parse_state(const std::string& name);  // Error{refused} with the nearest name

struct Sample {
  int64_t index = 0;     // unique in the run; figures are summed in this order
  int64_t group_id = 0;  // shared by the samples of one prompt of one rollout
  int64_t prompt_id = 0;
  std::string prompt;  // text
  std::string label;
  std::string response;                  // text
  std::vector<int64_t> tokens;           // prompt, then response
  int64_t response_len = 0;              // tokens of the response; 0 is legal
  std::vector<double> rollout_logprobs;  // [response_len], the engine's
  std::optional<double> reward;
  int64_t weight_version_first = 0;  // the engine's version when it took the request
  int64_t weight_version_last = 0;   // and when it ended
  SampleState state = SampleState::completed;
  std::string finish_reason;  // the engine's word: "stop", "length", "abort"
  std::string engine;         // its address, for errors

  int64_t prompt_len() const { return static_cast<int64_t>(tokens.size()) - response_len; }
  // Takes part in training: completed or truncated, with a reward.
  bool is_trainable() const;
};

// Throws Error{process_failed} naming sample, prompt, engine and version where a sample is not what an engine may
// return: no prompt token, a count that does not fit, a log-prob that is NaN, infinite or above 0 (by more than
// rounding), versions that go back.
void check_sample(const Sample& sample);

// One JSON object per sample and line, in the given order; written aside and renamed. Ill-formed UTF-8 is replaced.
void write_samples_jsonl(const fs::path& path, std::span<const Sample> samples);

}  // namespace vime::rollout
