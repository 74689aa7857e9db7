// Made-up optimizer steps: what the ranks of any layout hold of one made-up truth, element by element, and the figures
// that they would answer with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "base/random.hpp"
#include "sweep/compare.hpp"
#include "sweep/record.hpp"

namespace vime::sweep {

struct ShardValues {
  std::string name;
  tensor::Shape full_shape;
  arch::Shard shard;
  std::vector<float> gradient;  // [shard.shape]
  std::vector<float> weight;
};

struct RankValues {
  placement::TrainerRank place;
  std::vector<ShardValues> shards;
  std::vector<double> logprobs, logprobs_after;
};

// The baseline's has one rank, which holds everything whole.
struct StepValues {
  int step = 1;
  placement::Layout layout;
  double loss = 0.0;
  double grad_norm = 0.0;
  std::vector<RankValues> ranks;
};

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

inline StepValues make_step(const placement::Layout& layout, int step = 1) {
  const arch::ModelConfig config = test_model();
  StepValues record;
  record.step = step;
  record.layout = layout;
  record.loss = 0.25;
  record.grad_norm = 4.0;
  for (const placement::TrainerRank& place :
       placement::make_ranks(layout.tp * layout.pp * layout.cp * layout.dp, layout.tp, layout.pp, layout.cp)) {
    RankValues rank;
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

inline StepValues make_baseline(int step = 1) {
  return make_step({1, 1, 1, 1}, step);
}

inline ShardValues& shard_named(StepValues& record, int rank, const std::string& name) {
  for (ShardValues& shard : record.ranks.at(static_cast<size_t>(rank)).shards) {
    if (shard.name == name) return shard;
  }
  throw std::runtime_error("rank " + std::to_string(rank) + " does not hold " + name);
}

// As a rank works them out, one element after another. whole: the baseline's; null: held against nothing.
inline TensorFigures plain_figures(const std::vector<float>& mine, const ShardValues& shard,
                                   const std::vector<float>* whole, double spacing) {
  TensorFigures figures;
  figures.difference = whole == nullptr || mine.empty() ? 0.0 : -1.0;
  size_t inner = 1;
  for (size_t i = static_cast<size_t>(shard.shard.dim) + 1; i < shard.full_shape.size(); ++i) {
    inner *= static_cast<size_t>(shard.full_shape[i]);
  }
  const size_t run = inner * static_cast<size_t>(shard.shard.end - shard.shard.begin);
  for (size_t i = 0; i < mine.size(); ++i) {
    const double value = mine[i];
    if (std::isnan(value) || std::abs(value) > figures.largest) figures.largest = std::abs(value);
    figures.squares += value * value;
    if (whole == nullptr) continue;
    const size_t at = i / run * inner * static_cast<size_t>(shard.full_shape[static_cast<size_t>(shard.shard.dim)]) +
                      inner * static_cast<size_t>(shard.shard.begin) + i % run;
    const double expected = (*whole)[at], size = std::max(std::abs(value), std::abs(expected));
    double away = std::abs(value - expected);
    if (std::isnan(away)) {
      away = std::numeric_limits<double>::infinity();
    } else if (spacing > 0.0 && size > 0.0 && std::isfinite(size)) {
      away = std::max(0.0, away - spacing * std::exp2(std::ilogb(size)));
    }
    ++figures.compared;
    figures.difference_squares += away * away;
    if (away <= figures.difference) continue;
    figures.difference = away;
    figures.at = static_cast<int64_t>(at);
    figures.found = value;
    figures.expected = expected;
  }
  return figures;
}

// What the driver gets to know of a step whose ranks were held against `baseline`; null: against nothing.
inline StepRecord record_of(const StepValues& step, const StepValues* baseline, double spacing = 0.0) {
  StepRecord record{step.step, step.layout, step.loss, step.grad_norm, {}};
  for (const RankValues& rank : step.ranks) {
    RankRecord answered{rank.place, {}, rank.logprobs, rank.logprobs_after};
    for (const ShardValues& shard : rank.shards) {
      const ShardValues* whole = nullptr;
      for (const ShardValues& one : (baseline == nullptr ? step : *baseline).ranks[0].shards) {
        if (baseline != nullptr && one.name == shard.name) whole = &one;
      }
      answered.shards.push_back(
          {shard.name, shard.full_shape, shard.shard,
           plain_figures(shard.gradient, shard, whole == nullptr ? nullptr : &whole->gradient, 0.0),
           plain_figures(shard.weight, shard, whole == nullptr ? nullptr : &whole->weight, spacing)});
    }
    record.ranks.push_back(std::move(answered));
  }
  return record;
}

inline StepRecord baseline_record(const StepValues& baseline) {
  return record_of(baseline, nullptr);
}

inline std::vector<Check> compare_values(const StepValues& baseline, const StepValues& leg,
                                         const CompareOptions& options, double spacing = 0.0) {
  return compare_step(baseline_record(baseline), record_of(leg, &baseline, spacing), options);
}

}  // namespace vime::sweep
