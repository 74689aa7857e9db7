#include "loop/evaluation.hpp"

#include "algo/pass_at_k.hpp"
#include "base/error.hpp"

namespace vime::loop {

std::vector<std::pair<int64_t, double>> pass_at(const std::vector<double>& scores, int64_t per_prompt) {
  const int64_t prompts = static_cast<int64_t>(scores.size()) / per_prompt;
  std::vector<std::pair<int64_t, double>> shares;
  for (const int64_t k : algo::pass_at_k_sizes(per_prompt)) {
    double sum = 0.0;
    for (int64_t prompt = 0; prompt < prompts; ++prompt) {
      int64_t right = 0;
      for (int64_t i = 0; i < per_prompt; ++i) {
        if (scores[static_cast<size_t>(prompt * per_prompt + i)] >= 1.0) ++right;
      }
      sum += algo::pass_at_k(per_prompt, right, k);
    }
    shares.emplace_back(k, sum / static_cast<double>(prompts));
  }
  return shares;
}

EvalResult evaluate(const GenerateContext& context, const spec::EvalDataset& set,
                    const std::vector<data::Prompt>& prompts, const std::vector<int64_t>& stop_token_ids) {
  Request request{
      "evaluation " + set.name + " of answer", prompts, set.n_samples_per_eval_prompt, {}, set.reward.value_or("")};
  request.sampling = {set.temperature, set.top_p, set.top_k, set.max_response_len, stop_token_ids};
  const Generated generated = [&] {
    try {
      return generate(context, request);
    } catch (const Error& error) {
      throw error.within("evaluation " + set.name);
    }
  }();

  EvalResult result;
  result.name = set.name;
  result.prompts = static_cast<int64_t>(prompts.size());
  result.answers = static_cast<int64_t>(generated.samples.size());
  result.without_score = generated.tally.without_number();
  std::vector<double> scores;
  double tokens = 0.0, truncated = 0.0;
  for (const rollout::Sample& sample : generated.samples) {
    scores.push_back(sample.reward.value_or(0.0));
    result.score += scores.back();
    tokens += static_cast<double>(sample.response_len);
    truncated += sample.finish_reason == "length" ? 1.0 : 0.0;
  }
  const auto count = static_cast<double>(result.answers);
  result.score /= count;
  result.response_len_mean = tokens / count;
  result.truncated_ratio = truncated / count;
  if (set.n_samples_per_eval_prompt > 1) result.pass_at = pass_at(scores, set.n_samples_per_eval_prompt);
  return result;
}

Json to_json(const EvalResult& result) {
  const std::string name = "eval/" + result.name;
  Json json = {{name, result.score}};
  for (const auto& [k, share] : result.pass_at) json[name + "-pass@" + std::to_string(k)] = share;
  json[name + "-truncated_ratio"] = result.truncated_ratio;
  json[name + "/response_len/mean"] = result.response_len_mean;
  json[name + "/without_score"] = result.without_score;
  return json;
}

}  // namespace vime::loop
