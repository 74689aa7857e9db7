// Made-up records of optimizer steps: what the ranks of any layout hold of one made-up truth.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "base/random.hpp"
#include "sweep/record.hpp"

namespace vime::sweep {

inline arch::ModelConfig test_model() {
  return arch::preset("tiny-parallel", 61);
}

inline const std::vector<int64_t>& test_responses() {
  static const std::vector<int64_t> lengths = {3, 1, 7, 2, 5, 4, 6, 1};
  return lengths;
}

inline uint64_t name_key(const std::string& name) {
  uint64_t key = 1;
  for (const char c : name) key = mix_key(key, static_cast<unsigned char>(c));
  return key;
}

// Sizes from about 1e-3 to 1 of `scale`, both signs.
inline std::vector<float> made_up(const std::string& name, int64_t count, double scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = mix_key(name_key(name), static_cast<uint64_t>(i));
    const double size = scale * std::pow(10.0, -3.0 * uniform01(key));
    values.push_back(static_cast<float>(uniform01(key + 1) < 0.5 ? -size : size));
  }
  return values;
}

inline std::vector<float> shard_of_values(const std::vector<float>& full, const tensor::TensorInfo& info,
                                          const arch::Shard& shard) {
  std::vector<float> local(static_cast<size_t>(tensor::element_count(shard.shape)));
  arch::copy_shard(reinterpret_cast<const std::byte*>(full.data()), info, shard,
                   reinterpret_cast<std::byte*>(local.data()));
  return local;
}

// Log-probs of the samples that are this data-parallel rank's.
inline std::vector<double> made_up_logprobs(double shift, int dp_rank, int dp, bool computed) {
  std::vector<double> values;
  for (size_t sample = 0; sample < test_responses().size(); ++sample) {
    for (int64_t i = 0; i < test_responses()[sample]; ++i) {
      const bool mine = computed && static_cast<int>(sample) % dp == dp_rank;
      values.push_back(mine ? -2.0 - shift - 0.1 * static_cast<double>(i) - static_cast<double>(sample) : std::nan(""));
    }
  }
  return values;
}

inline StepRecord make_record(const placement::Layout& layout, int step = 1) {
  const arch::ModelConfig config = test_model();
  StepRecord record;
  record.step = step;
  record.layout = layout;
  record.loss = 0.25;
  record.grad_norm = 4.0;
  for (const placement::TrainerRank& place :
       placement::make_ranks(layout.tp * layout.pp * layout.cp * layout.dp, layout.tp, layout.pp, layout.cp)) {
    RankRecord rank;
    rank.place = place;
    const arch::Stage stage = arch::stage_of(config, place.pp_rank, layout.pp);
    for (const arch::ArenaEntry& entry :
         arch::arena_layout(config, tensor::DType::f32, place.tp_rank, layout.tp, stage).entries) {
      const tensor::TensorInfo& info = entry.parameter.full;
      const int64_t count = tensor::element_count(info.shape);
      rank.shards.push_back({info.name, info.shape, entry.shard,
                             shard_of_values(made_up("gradient " + info.name, count, 0.1), info, entry.shard),
                             shard_of_values(made_up("weight " + info.name, count, 0.3), info, entry.shard)});
    }
    rank.logprobs = made_up_logprobs(0.0, place.dp_rank, layout.dp, stage.last());
    rank.logprobs_after = made_up_logprobs(0.5, place.dp_rank, layout.dp, stage.last());
    record.ranks.push_back(std::move(rank));
  }
  return record;
}

inline StepRecord make_baseline(int step = 1) {
  return make_record({1, 1, 1, 1}, step);
}

inline ShardRecord& shard_named(StepRecord& record, int rank, const std::string& name) {
  for (ShardRecord& shard : record.ranks.at(static_cast<size_t>(rank)).shards) {
    if (shard.name == name) return shard;
  }
  throw std::runtime_error("rank " + std::to_string(rank) + " does not hold " + name);
}

}  // namespace vime::sweep
