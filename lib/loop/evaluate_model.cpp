#include "loop/evaluate_model.hpp"

#include <cstdio>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "loop/evaluation.hpp"
#include "loop/processes.hpp"
#include "loop/rollouts.hpp"

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

std::vector<EvalResult> answer_all(const Prepared& prepared, const RunDirectory& directory,
                                   const std::string& vime_binary) {
  const spec::ExperimentSpec& spec = prepared.spec;
  Processes processes(prepared, directory, vime_binary, {});
  const uint64_t stream = mix_key(static_cast<uint64_t>(spec.seed), kEvalStream);
  std::vector<EvalResult> results;
  for (size_t i = 0; i < spec.eval.datasets.size(); ++i) {
    const GenerateContext context = generate_context(prepared, processes, mix_key(stream, i), 0);
    results.push_back(
        evaluate(context, spec.eval.datasets[i], prepared.eval_prompts[i], spec.rollout.rollout_stop_token_ids));
  }
  processes.shutdown();
  return results;
}

}  // namespace

int evaluate_model(const EvalOptions& options) {
  const Prepared prepared = prepare_evaluation(options.spec, random_token());
  for (const std::string& note : prepared.notes) log::info("loop", note);
  TempDir folder;
  const RunDirectory directory(folder.path());
  std::vector<EvalResult> results;
  try {
    results = answer_all(prepared, directory, options.vime_binary);
  } catch (const Error& error) {
    // The error names logs in the folder.
    if (error.kind() != ErrorKind::interrupted) folder.keep();
    throw;
  }
  Json list = Json::array();
  std::string text;
  for (const EvalResult& result : results) {
    list.push_back(json_of(result));
    text += table_row(result);
  }
  if (options.json) text = Json({{"model", prepared.spec.model.path.value()}, {"eval", list}}).dump(2) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace vime::loop
