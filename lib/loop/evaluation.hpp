// Evaluation data sets answered by the engines and scored. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "loop/generate.hpp"
#include "spec/spec.hpp"

namespace vime::loop {

struct EvalResult {
  std::string name;
  double score = 0.0;  // mean over all answers; one without a score counts 0
  int64_t prompts = 0;
  int64_t answers = 0;
  std::vector<std::pair<int64_t, double>> pass_at;  // (k, share) with more than one answer to a prompt; right = 1
  double response_len_mean = 0.0;
  double truncated_ratio = 0.0;
  int64_t without_score = 0;
};

// `prompts`: of this data set.
EvalResult evaluate(const GenerateContext& context, const spec::EvalDataset& set,
                    const std::vector<data::Prompt>& prompts, const std::vector<int64_t>& stop_token_ids);

// {"eval/<name>": score, "eval/<name>-pass@k", "eval/<name>-truncated_ratio", "eval/<name>/response_len/mean", ...}
Json to_json(const EvalResult& result);

// Of the answers to each prompt, side by side: mean over the prompts of pass@k for k = 1, 2, 4, ... Pure.
std::vector<std::pair<int64_t, double>> pass_at(const std::vector<double>& scores, int64_t per_prompt);

}  // namespace vime::loop
