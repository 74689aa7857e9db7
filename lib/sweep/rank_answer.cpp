#include "sweep/rank_answer.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"

namespace vime::sweep {
namespace {

[[noreturn]] void fail(const placement::TrainerRank& place, const std::string& what) {
  throw Error(ErrorKind::check_failed, rank_name(place) + ": " + what);
}

// "[64, 64], rows 64 to 127 of [128, 64]"
std::string part_text(const tensor::Shape& shape, int dim, int64_t begin, int64_t end, const tensor::Shape& full) {
  return tensor::shape_text(shape) + ", " + (dim == 0 ? "rows " : "columns ") + std::to_string(begin) + " to " +
         std::to_string(end - 1) + " of " + tensor::shape_text(full);
}

void require_tokens(const placement::TrainerRank& place, const char* name, const std::vector<double>& values,
                    int64_t expected) {
  if (static_cast<int64_t>(values.size()) == expected) return;
  fail(place, std::string(name) + ": expected " + std::to_string(expected) + " response tokens, found " +
                  std::to_string(values.size()));
}

}  // namespace

std::string rank_name(const placement::TrainerRank& place) {
  return "rank " + std::to_string(place.rank) + " (tp " + std::to_string(place.tp_rank) + ", pp " +
         std::to_string(place.pp_rank) + ", cp " + std::to_string(place.cp_rank) + ", dp " +
         std::to_string(place.dp_rank) + ")";
}

RankRecord rank_record(const rollout::StepAnswer& answer, const arch::ModelConfig& config, const RankLayout& rank,
                       int64_t response_tokens, bool compared) {
  const placement::TrainerRank& place = rank.place;
  std::map<std::string, const rollout::ShardFigures*> held;
  for (const rollout::ShardFigures& shard : answer.shards) {
    if (!held.emplace(shard.name, &shard).second) fail(place, shard.name + " is there twice");
  }
  RankRecord record;
  record.place = place;
  const arch::Stage stage = arch::stage_of(config, place.pp_rank, rank.layout.pp);
  for (arch::ArenaEntry& entry :
       arch::arena_layout(config, tensor::DType::f32, place.tp_rank, rank.layout.tp, stage).entries) {
    const tensor::TensorInfo& full = entry.parameter.full;
    const arch::Shard& shard = entry.shard;
    const auto found = held.find(full.name);
    if (found == held.end()) fail(place, full.name + " is missing");
    const rollout::ShardFigures& figures = *found->second;
    if (figures.full_shape != full.shape || figures.shape != shard.shape || figures.dim != shard.dim ||
        figures.begin != shard.begin || figures.end != shard.end) {
      fail(place, full.name + ": expected " + part_text(shard.shape, shard.dim, shard.begin, shard.end, full.shape) +
                      ", found " +
                      part_text(figures.shape, figures.dim, figures.begin, figures.end, figures.full_shape));
    }
    const int64_t elements = compared ? tensor::element_count(shard.shape) : 0;
    for (const rollout::TensorFigures* tensor : {&figures.gradient, &figures.weight}) {
      if (tensor->compared == elements) continue;
      fail(place, full.name + ": " + std::to_string(tensor->compared) + " elements were held against the baseline, " +
                      "expected " + std::to_string(elements));
    }
    record.shards.push_back({full.name, full.shape, shard, figures.gradient, figures.weight});
    held.erase(found);
  }
  if (!held.empty()) fail(place, held.begin()->first + " does not belong on this rank");
  require_tokens(place, "log-probs", answer.logprobs, response_tokens);
  require_tokens(place, "log-probs after the step", answer.logprobs_after, response_tokens);
  record.logprobs = answer.logprobs;
  record.logprobs_after = answer.logprobs_after;
  return record;
}

}  // namespace vime::sweep
