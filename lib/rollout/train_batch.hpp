// What the driver hands to the trainer ranks for one rollout: flat arrays, one safetensors file. The same file can be
// kept and replayed. Owned by value; reading and writing block on the disk; nothing here is shared between threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algo/advantage.hpp"
#include "base/files.hpp"
#include "rollout/sample.hpp"

namespace vime::rollout {

struct TrainBatch {
  std::string run_id;
  int64_t rollout_id = 0;
  int64_t weight_version = 0;  // of the engines that generated it

  // per sample [samples]
  std::vector<int64_t> sample_indices;
  std::vector<int64_t> group_ids;
  std::vector<int64_t> prompt_ids;
  std::vector<int64_t> lengths;  // prompt + response tokens
  std::vector<int64_t> response_lengths;
  std::vector<int64_t> weight_versions_first;
  std::vector<int64_t> weight_versions_last;
  std::vector<uint8_t> has_reward;  // 0: rewards holds 0 there, which means nothing
  std::vector<double> rewards;
  std::vector<double> advantages;

  // concatenated over samples, in the same order
  std::vector<int64_t> tokens;           // [sum of lengths]
  std::vector<uint8_t> loss_mask;        // [sum of response_lengths]
  std::vector<double> rollout_logprobs;  // [sum of response_lengths]

  int64_t samples() const { return static_cast<int64_t>(lengths.size()); }
  bool operator==(const TrainBatch&) const = default;
};

// Samples are taken in the order of their index, whatever the order of arrival. Samples that are not trainable stay in
// the batch with mask 0 and advantage 0 (so that batch sizes hold) and take no part in their group's mean.
// Error{process_failed} from check_sample and for an index that comes twice.
TrainBatch make_train_batch(std::span<const Sample> samples, const std::string& run_id, int64_t rollout_id,
                            int64_t weight_version, const algo::GroupAdvantageOptions& options = {});

void write_train_batch(const fs::path& path, const TrainBatch& batch);
// expected_run_id empty: any. Error{refused} naming the file where it is of another run or its arrays do not fit
// together.
TrainBatch read_train_batch(const fs::path& path, const std::string& expected_run_id = "");

// Where sample i begins in tokens, and where its response begins in loss_mask and rollout_logprobs; [samples + 1].
std::vector<int64_t> offsets(std::span<const int64_t> lengths);

}  // namespace vime::rollout
