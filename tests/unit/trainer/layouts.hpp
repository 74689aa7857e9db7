// Trainer ranks of a layout as threads of the test, and what they computed put together.
#pragma once

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/random.hpp"
#include "rollout/step_probe.hpp"
#include "rollout/train_batch.hpp"
#include "tensor/safetensors.hpp"
#include "trainer/rank.hpp"

namespace vime::trainer {

struct LayoutOfTest {
  int tp = 1, pp = 1, cp = 1, dp = 1;
  int size() const { return tp * pp * cp * dp; }
  std::string name() const {
    return "tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " cp " + std::to_string(cp) + " dp " +
           std::to_string(dp);
  }
};

// Eight heads over four key/value heads, five layers, an odd vocabulary: everything that a cut can get wrong.
inline arch::ModelConfig parallel_config(bool tied, int64_t vocabulary = 37) {
  arch::ModelConfig config = arch::preset("tiny-parallel", vocabulary);
  config.tie_word_embeddings = tied;
  if (!tied) {  // a Qwen2: biases instead of norms of q and k
    config.architecture = "Qwen2ForCausalLM";
    config.model_type = "qwen2";
    config.qk_norm = false;
    config.qkv_bias = true;
  }
  return config;
}

// Sixteen samples of 2 to 50 tokens, some with a masked token, one wholly masked, one without a response.
inline rollout::TrainBatch parallel_batch(uint64_t vocabulary = 37) {
  rollout::TrainBatch batch;
  const int64_t prompts[] = {1, 2, 3, 5, 9, 14, 20, 4};
  const int64_t responses[] = {1, 3, 2, 0, 11, 7, 30, 5};
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t prompt = prompts[i % 8], response = responses[(i + i / 8) % 8];
    batch.sample_indices.push_back(i);
    batch.group_ids.push_back(i / 4);
    batch.prompt_ids.push_back(i / 4);
    batch.lengths.push_back(prompt + response);
    batch.response_lengths.push_back(response);
    batch.weight_versions_first.push_back(0);
    batch.weight_versions_last.push_back(0);
    batch.has_reward.push_back(1);
    batch.rewards.push_back(0.0);
    batch.advantages.push_back(i % 3 == 0 ? 0.9 : -0.6);
    for (int64_t t = 0; t < prompt + response; ++t) {
      batch.tokens.push_back(
          static_cast<int64_t>(mix_key(5, static_cast<uint64_t>(i), static_cast<uint64_t>(t)) % vocabulary));
    }
    for (int64_t t = 0; t < response; ++t) {
      batch.loss_mask.push_back(i == 5 || (i == 6 && t % 3 == 1) ? 0 : 1);
      batch.rollout_logprobs.push_back(-3.5);
    }
  }
  return batch;
}

inline RankOptions options_of(const LayoutOfTest& layout, const arch::ModelConfig& config) {
  RankOptions options;
  placement::Request request;
  request.nodes = {layout.size()};
  request.actor_num_gpus_per_node = layout.size();
  request.rollout_num_gpus = layout.size();
  request.tensor_model_parallel_size = layout.tp;
  request.pipeline_model_parallel_size = layout.pp;
  request.context_parallel_size = layout.cp;
  options.plan = placement::make_plan(request);
  options.routes.assign(options.plan.engines.size(), spec::Route::memory);
  options.config = config;
  options.seed = 11;
  options.token = "secret";
  options.optimizer.schedule.lr = 0.05;
  options.optimizer.eps = 1e-2;
  options.policy.entropy_coef = 0.02;
  options.policy.temperature = 0.9;
  options.max_tokens_per_gpu = 70;
  options.global_batch_size = 16;
  options.buffer_bytes = 8000;
  options.meeting_timeout = options.transfer_timeout = std::chrono::seconds(60);
  return options;
}

// Elements of the weights in a step's file that are no numbers of bfloat16.
inline int64_t weights_beyond_bfloat16(const fs::path& step_file) {
  const tensor::SafetensorsFile file(step_file);
  int64_t beyond = 0;
  for (const tensor::TensorView& view : file.tensors()) {
    if (!view.info.name.starts_with("weight.")) continue;
    const auto* const words = reinterpret_cast<const uint32_t*>(view.data);
    beyond += std::count_if(words, words + view.info.bytes() / sizeof(uint32_t),
                            [](uint32_t word) { return (word & 0xffff) != 0; });
  }
  return beyond;
}

using MakeTestRank = std::function<std::unique_ptr<TrainerRank>(RankOptions)>;

// Makes every rank and calls `body` on each, on a thread of its own; rethrows what the first threw.
inline void run_layout(const RankOptions& common, const std::function<void(TrainerRank&)>& body,
                       const MakeTestRank& make = {}) {
  const size_t size = common.plan.ranks.size();
  std::vector<std::unique_ptr<TrainerRank>> ranks;
  for (size_t rank = 0; rank < size; ++rank) {
    RankOptions options = common;
    options.rank = static_cast<int>(rank);
    ranks.push_back(make ? make(options) : std::make_unique<TrainerRank>(options));
  }
  const uint16_t port = ranks.front()->meeting_port();
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ranks[rank]->setup("127.0.0.1", port);
        body(*ranks[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// What the ranks of a layout say of one step, put together.
struct StepOfTest {
  struct Tensor {
    int64_t elements = 0;             // of all parts that a replica owns; the next three are of these too
    double squares = 0.0;             // sum
    double difference_squares = 0.0;  // sum
    double largest = 0.0;             // size
    double difference = 0.0;          // the largest on any rank, copies included
    bool operator==(const Tensor&) const = default;
  };
  std::map<std::string, Tensor> tensors;  // "grad.<name>", "weight.<name>"
  std::vector<double> logprobs, logprobs_after;
  double loss = 0.0, grad_norm = 0.0;

  void add(const rollout::StepAnswer& answer, const placement::TrainerRank& rank) {
    const bool first_replica = rank.dp_rank == 0 && rank.cp_rank == 0;
    for (const rollout::ShardFigures& shard : answer.shards) {
      // Stages that share a tied embedding, and tensor-parallel ranks that share a part, own it once.
      const bool owner = first_replica && owned_.insert({shard.name, shard.begin}).second;
      for (const auto& [kind, one] : {std::pair{"grad.", &shard.gradient}, std::pair{"weight.", &shard.weight}}) {
        Tensor& tensor = tensors[kind + shard.name];
        tensor.difference = std::max(tensor.difference, one->difference);
        if (!owner) continue;
        tensor.elements += tensor::element_count(shard.shape);
        tensor.squares += one->squares;
        tensor.difference_squares += one->difference_squares;
        tensor.largest = std::max(tensor.largest, one->largest);
      }
    }
    for (const auto& [known, values] :
         {std::pair{&logprobs, &answer.logprobs}, std::pair{&logprobs_after, &answer.logprobs_after}}) {
      known->resize(values->size(), 0.0);
      if (rank.tp_rank > 0 || rank.cp_rank > 0) continue;
      for (size_t i = 0; i < values->size(); ++i) {
        if (!std::isnan((*values)[i])) (*known)[i] += (*values)[i];
      }
    }
  }

 private:
  std::set<std::pair<std::string, int64_t>> owned_;
};

inline double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

inline double distance_of(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b.at(i);
  return norm_of(a);
}

// Largest distance of any tensor of a kind ("grad.", "weight.") from those that `found` was held against, relative to
// its size in `expected`, or to a fiftieth of the largest of its kind: a gradient that ought to be next to nothing is
// nothing but rounding.
inline double furthest_of(const StepOfTest& found, const StepOfTest& expected, const std::string& kind) {
  double largest_size = 0.0, furthest = 0.0;
  for (const auto& [name, tensor] : expected.tensors) {
    if (name.starts_with(kind)) largest_size = std::max(largest_size, std::sqrt(tensor.squares));
  }
  for (const auto& [name, tensor] : expected.tensors) {
    if (!name.starts_with(kind)) continue;
    const double distance = std::sqrt(found.tensors.at(name).difference_squares);
    furthest = std::max(furthest, distance / std::max(std::sqrt(tensor.squares), largest_size / 50));
  }
  return furthest;
}

// Of all log-probs, before and after the step.
inline double furthest_logprobs(const StepOfTest& found, const StepOfTest& expected) {
  const double size = std::max(norm_of(expected.logprobs), norm_of(expected.logprobs_after));
  double furthest = 0.0;
  for (const auto values : {&StepOfTest::logprobs, &StepOfTest::logprobs_after}) {
    furthest = std::max(furthest,
                        distance_of(found.*values, expected.*values) / std::max(norm_of(expected.*values), size / 50));
  }
  return furthest;
}

}  // namespace vime::trainer
