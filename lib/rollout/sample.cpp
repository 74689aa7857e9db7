#include "rollout/sample.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/strings.hpp"

namespace vime::rollout {
namespace {

struct Named {
  const char* name;
  SampleState state;
};
constexpr Named kStates[] = {{"completed", SampleState::completed},
                             {"truncated", SampleState::truncated},
                             {"aborted", SampleState::aborted},
                             {"failed", SampleState::failed}};

// Log-softmax in single precision may end a few units above 0 for a token that is certain.
constexpr double kLogprobRounding = 1e-5;

[[noreturn]] void refuse(const Sample& sample, const std::string& problem) {
  throw Error(ErrorKind::process_failed, "sample " + std::to_string(sample.index) + " (prompt " +
                                             std::to_string(sample.prompt_id) + ", engine " +
                                             (sample.engine.empty() ? "unknown" : sample.engine) + ", weight version " +
                                             std::to_string(sample.weight_version_first) + "): " + problem);
}

Json to_json(const Sample& sample) {
  return {{"index", sample.index},
          {"group_id", sample.group_id},
          {"prompt_id", sample.prompt_id},
          {"prompt", sample.prompt},
          {"response", sample.response},
          {"label", sample.label},
          {"reward", sample.reward ? Json(*sample.reward) : Json()},
          {"state", state_name(sample.state)},
          {"finish_reason", sample.finish_reason},
          {"response_len", sample.response_len},
          {"weight_version_first", sample.weight_version_first},
          {"weight_version_last", sample.weight_version_last},
          {"engine", sample.engine}};
}

}  // namespace

const char* state_name(SampleState state) {
  for (const Named& named : kStates) {
    if (named.state == state) return named.name;
  }
  return "unknown";
}

SampleState parse_state(const std::string& name) {
  std::vector<std::string> names;
  for (const Named& named : kStates) {
    if (name == named.name) return named.state;
    names.emplace_back(named.name);
  }
  const std::string near = nearest_name(name, names);
  throw Error(ErrorKind::refused, "sample state: expected one of " + join(names, ", ") + ", found \"" + name + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

bool Sample::is_trainable() const {
  return reward.has_value() && (state == SampleState::completed || state == SampleState::truncated);
}

void check_sample(const Sample& sample) {
  if (sample.response_len < 0 || sample.prompt_len() < 1) {
    refuse(sample, "expected at least one prompt token, found " + std::to_string(sample.tokens.size()) +
                       " tokens of which " + std::to_string(sample.response_len) + " are the response");
  }
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    if (sample.tokens[t] < 0) refuse(sample, "token " + std::to_string(t) + " is " + std::to_string(sample.tokens[t]));
  }
  if (static_cast<int64_t>(sample.rollout_logprobs.size()) != sample.response_len) {
    refuse(sample, "expected " + std::to_string(sample.response_len) + " log-probs, found " +
                       std::to_string(sample.rollout_logprobs.size()));
  }
  for (size_t t = 0; t < sample.rollout_logprobs.size(); ++t) {
    const double logprob = sample.rollout_logprobs[t];
    if (!std::isfinite(logprob) || logprob > kLogprobRounding) {
      refuse(sample, "log-prob of response token " + std::to_string(t) +
                         ": expected a finite number of at most 0, found " + format_number(logprob));
    }
  }
  if (sample.weight_version_last < sample.weight_version_first) {
    refuse(sample, "its last token is of weight version " + std::to_string(sample.weight_version_last) +
                       ", older than its first");
  }
  if (sample.reward && !std::isfinite(*sample.reward)) refuse(sample, "its reward is not finite");
}

void write_samples_jsonl(const fs::path& path, std::span<const Sample> samples) {
  std::string text;
  for (const Sample& sample : samples) {
    text += to_json(sample).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  write_file_atomic(path, text);
}

}  // namespace vime::rollout
