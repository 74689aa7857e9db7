#include "rollout/step_probe.hpp"

#include <cmath>
#include <limits>

namespace vime::rollout {
namespace {

Json number_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf";
}

double parse_number(const Json& value, const std::string& what) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  throw Error(ErrorKind::process_failed, what + ": expected a number, \"nan\", \"inf\" or \"-inf\"");
}

double number(const Json& object, const char* key, const std::string& what) {
  return parse_number(json_member(object, key, what), what + ": \"" + key + "\"");
}

const Json& list(const Json& object, const char* key, const std::string& what) {
  const Json& found = json_member(object, key, what);
  if (!found.is_array()) throw Error(ErrorKind::process_failed, what + ": \"" + key + "\": expected a list");
  return found;
}

Json numbers_json(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(number_json(value));
  return json;
}

std::vector<double> numbers(const Json& object, const char* key, const std::string& what) {
  std::vector<double> values;
  for (const Json& value : list(object, key, what)) values.push_back(parse_number(value, what + ": \"" + key + "\""));
  return values;
}

Json figures_json(const TensorFigures& figures) {
  return {{"largest", number_json(figures.largest)},
          {"squares", number_json(figures.squares)},
          {"compared", figures.compared},
          {"difference", number_json(figures.difference)},
          {"difference_squares", number_json(figures.difference_squares)},
          {"at", figures.at},
          {"found", number_json(figures.found)},
          {"expected", number_json(figures.expected)}};
}

TensorFigures parse_figures(const Json& json, const std::string& what) {
  return {.largest = number(json, "largest", what),
          .squares = number(json, "squares", what),
          .compared = json_int(json, "compared", what),
          .difference = number(json, "difference", what),
          .difference_squares = number(json, "difference_squares", what),
          .at = json_int(json, "at", what),
          .found = number(json, "found", what),
          .expected = number(json, "expected", what)};
}

}  // namespace

Json to_json(const StepProbe& probe) {
  return {{"write", probe.write},
          {"against", probe.against},
          {"weight_spacing", probe.weight_spacing},
          {"round_weights", probe.round_weights}};
}

StepProbe parse_step_probe(const Json& json, const std::string& what) {
  return {json_string(json, "write", what), json_string(json, "against", what),
          json_number(json, "weight_spacing", what), json_bool(json, "round_weights", what)};
}

Json to_json(const StepAnswer& answer) {
  Json shards = Json::array();
  for (const ShardFigures& shard : answer.shards) {
    shards.push_back({{"name", shard.name},
                      {"full_shape", shard.full_shape},
                      {"dim", shard.dim},
                      {"begin", shard.begin},
                      {"end", shard.end},
                      {"shape", shard.shape},
                      {"gradient", figures_json(shard.gradient)},
                      {"weight", figures_json(shard.weight)}});
  }
  return {{"shards", shards},
          {"logprobs", numbers_json(answer.logprobs)},
          {"logprobs_after", numbers_json(answer.logprobs_after)}};
}

StepAnswer parse_step_answer(const Json& json, const std::string& what) {
  StepAnswer answer;
  for (const Json& shard : list(json, "shards", what)) {
    const std::string name = json_string(shard, "name", what);
    const std::string of = what + ": " + name;
    answer.shards.push_back({.name = name,
                             .full_shape = json_ints(shard, "full_shape", of),
                             .dim = static_cast<int>(json_int(shard, "dim", of)),
                             .begin = json_int(shard, "begin", of),
                             .end = json_int(shard, "end", of),
                             .shape = json_ints(shard, "shape", of),
                             .gradient = parse_figures(json_member(shard, "gradient", of), of + ": gradient"),
                             .weight = parse_figures(json_member(shard, "weight", of), of + ": weight")});
  }
  answer.logprobs = numbers(json, "logprobs", what);
  answer.logprobs_after = numbers(json, "logprobs_after", what);
  return answer;
}

}  // namespace vime::rollout
