// A small sound spec and what the tests ask of it.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "spec/load.hpp"

namespace vime::spec {

// Line 1 is "model:".
inline const std::string kSound =
    "model: {preset: tiny}\n"
    "data: {prompt_data: builtin:sort_digits}\n"
    "reward: {type: position_match}\n"
    "placement: {colocate: true, actor_num_gpus_per_node: 2}\n"
    "rollout: {num_rollout: 3, rollout_batch_size: 4, n_samples_per_prompt: 2, rollout_max_response_len: 4}\n";

inline ExperimentSpec sound_with(const std::vector<std::string>& overrides) {
  return parse(kSound, "s.yaml", overrides);
}

// The message of the refusal; "" when the text was accepted.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, "s.yaml", overrides);
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.message();
  }
}

inline std::string refusal_with(const std::vector<std::string>& overrides) {
  return refusal(kSound, overrides);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace vime::spec
