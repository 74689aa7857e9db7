#include "loop/evaluate_model.hpp"

#include <cstdio>

#include "base/log.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "loop/evaluation.hpp"
#include "loop/rollouts.hpp"
#include "loop/setup.hpp"

namespace vime::loop {
namespace {

std::string table_row(const EvalResult& result) {
  std::string row = result.name + ": " + format_number(result.score) + " over " + std::to_string(result.answers) +
                    " answers to " + std::to_string(result.prompts) + " prompts";
  for (const auto& [k, share] : result.pass_at) row += ", pass@" + std::to_string(k) + " " + format_number(share);
  row += ", mean length " + format_number(result.response_len_mean, 3);
  if (result.truncated_ratio > 0) row += ", " + format_number(100 * result.truncated_ratio, 3) + " % cut off";
  if (result.without_score > 0) row += ", " + std::to_string(result.without_score) + " without a score (counted as 0)";
  return row + "\n";
}

Json json_of(const EvalResult& result) {
  Json json = {{"name", result.name},
               {"score", result.score},
               {"prompts", result.prompts},
               {"answers", result.answers},
               {"pass_at", Json::object()},
               {"response_len_mean", result.response_len_mean},
               {"truncated_ratio", result.truncated_ratio},
               {"without_score", result.without_score}};
  for (const auto& [k, share] : result.pass_at) json["pass_at"][std::to_string(k)] = share;
  return json;
}

}  // namespace

int evaluate_model(const EvalOptions& options) {
  const Prepared prepared = prepare_evaluation(options.spec, random_token());
  const spec::ExperimentSpec& spec = prepared.spec;
  const TempDir folder;
  const RunDirectory directory(folder.path());
  Processes processes(prepared, directory, options.vime_binary, {});
  const uint64_t stream = mix_key(static_cast<uint64_t>(spec.seed), kEvalStream);
  Json list = Json::array();
  std::string table;
  for (size_t i = 0; i < spec.eval.datasets.size(); ++i) {
    const GenerateContext context{processes.fleet(),
                                  processes.supervisor(),
                                  *prepared.tokenizer,
                                  processes.rewards(),
                                  spec.reward.group_rm,
                                  mix_key(stream, i),
                                  0};
    const EvalResult result = evaluate(context, spec.eval.datasets[i], prepared.eval_prompts[i],
                                       spec.rollout.rollout_stop_token_ids, spec.reward.max_missing_ratio);
    list.push_back(json_of(result));
    table += table_row(result);
  }
  processes.shutdown();
  const std::string text =
      options.json ? Json({{"model", spec.model.path.value()}, {"eval", list}}).dump(2) + "\n" : table;
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace vime::loop
