// Samples for the tests of this room.
#pragma once

#include "rollout/sample.hpp"

inline vime::rollout::Sample make_sample(int64_t index, int64_t group, std::optional<double> reward,
                                         std::vector<int64_t> prompt = {3, 4},
                                         std::vector<int64_t> response = {5, 6, 7}) {
  vime::rollout::Sample sample;
  sample.index = index;
  sample.group_id = group;
  sample.prompt_id = 100 + group;
  sample.prompt = "12=";
  sample.label = "12";
  sample.response = "12";
  sample.tokens = prompt;
  sample.tokens.insert(sample.tokens.end(), response.begin(), response.end());
  sample.response_len = static_cast<int64_t>(response.size());
  for (size_t t = 0; t < response.size(); ++t) {
    sample.rollout_logprobs.push_back(-0.25 * static_cast<double>(index + 1) - static_cast<double>(t));
  }
  sample.reward = reward;
  sample.weight_version_first = 4;
  sample.weight_version_last = 4;
  sample.finish_reason = "stop";
  sample.engine = "http://127.0.0.1:1234";
  return sample;
}
