#include "rollout/train_batch.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "tensor/safetensors.hpp"

namespace vime::rollout {
namespace {

using tensor::DType;

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
}

// The one list of the file's arrays, for writing (const batch) and reading. Largest elements first, so that all are
// aligned.
template <typename Batch, typename Visit>
void visit_arrays(Batch& batch, Visit&& visit) {
  visit("tokens", batch.tokens);
  visit("sample_indices", batch.sample_indices);
  visit("group_ids", batch.group_ids);
  visit("prompt_ids", batch.prompt_ids);
  visit("lengths", batch.lengths);
  visit("response_lengths", batch.response_lengths);
  visit("weight_versions_first", batch.weight_versions_first);
  visit("weight_versions_last", batch.weight_versions_last);
  visit("rewards", batch.rewards);
  visit("advantages", batch.advantages);
  visit("rollout_logprobs", batch.rollout_logprobs);
  visit("loss_mask", batch.loss_mask);
  visit("has_reward", batch.has_reward);
}

template <typename T>
void read_array(const tensor::SafetensorsFile& file, const std::string& name, std::vector<T>& values) {
  const tensor::TensorView& view = file.find(name);
  if (view.info.dtype != dtype_of<T>() || view.info.shape.size() != 1) {
    throw Error(ErrorKind::refused, file.path().string() + ": \"" + name + "\": expected one dimension of " +
                                        tensor::dtype_name(dtype_of<T>()) + ", found " +
                                        tensor::dtype_name(view.info.dtype) + " " +
                                        tensor::shape_text(view.info.shape));
  }
  values.resize(static_cast<size_t>(view.info.shape[0]));
  if (!values.empty()) std::memcpy(values.data(), view.data, values.size() * sizeof(T));
}

std::string metadata_text(const tensor::SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw Error(ErrorKind::refused, file.path().string() + ": no \"" + key + "\" in its metadata",
                "it is not a rollout file of vime");
  }
  return found->second;
}

int64_t metadata_int(const tensor::SafetensorsFile& file, const std::string& key) {
  const std::string text = metadata_text(file, key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorKind::refused,
                file.path().string() + ": \"" + key + "\": expected an integer, found \"" + text + "\"");
  }
  return value;
}

// What is wrong with the arrays' sizes, or "".
std::string misfit(const TrainBatch& batch) {
  const size_t samples = batch.lengths.size();
  if (batch.response_lengths.size() != samples || batch.sample_indices.size() != samples ||
      batch.group_ids.size() != samples || batch.prompt_ids.size() != samples ||
      batch.weight_versions_first.size() != samples || batch.weight_versions_last.size() != samples ||
      batch.has_reward.size() != samples || batch.rewards.size() != samples || batch.advantages.size() != samples) {
    return "its arrays have different numbers of samples";
  }
  size_t tokens = 0;
  size_t response_tokens = 0;
  for (size_t i = 0; i < samples; ++i) {
    const int64_t response = batch.response_lengths[i];
    // The first bound keeps the sums below from wrapping around on a damaged file.
    if (batch.lengths[i] > static_cast<int64_t>(batch.tokens.size()) || response < 0 || response >= batch.lengths[i]) {
      return "sample " + std::to_string(i) + " has length " + std::to_string(batch.lengths[i]) +
             " and response length " + std::to_string(response);
    }
    tokens += static_cast<size_t>(batch.lengths[i]);
    response_tokens += static_cast<size_t>(response);
  }
  if (tokens != batch.tokens.size()) return "its lengths do not add up to its tokens";
  if (response_tokens != batch.loss_mask.size() || response_tokens != batch.rollout_logprobs.size()) {
    return "its response lengths do not add up to its loss mask and log-probs";
  }
  return "";
}

void append_sample(const Sample& sample, TrainBatch& batch) {
  const bool trainable = sample.is_trainable();
  batch.sample_indices.push_back(sample.index);
  batch.group_ids.push_back(sample.group_id);
  batch.prompt_ids.push_back(sample.prompt_id);
  batch.lengths.push_back(static_cast<int64_t>(sample.tokens.size()));
  batch.response_lengths.push_back(sample.response_len);
  batch.weight_versions_first.push_back(sample.weight_version_first);
  batch.weight_versions_last.push_back(sample.weight_version_last);
  batch.has_reward.push_back(sample.reward ? 1 : 0);
  batch.rewards.push_back(sample.reward.value_or(0.0));
  batch.tokens.insert(batch.tokens.end(), sample.tokens.begin(), sample.tokens.end());
  batch.loss_mask.insert(batch.loss_mask.end(), static_cast<size_t>(sample.response_len), trainable ? 1 : 0);
  batch.rollout_logprobs.insert(batch.rollout_logprobs.end(), sample.rollout_logprobs.begin(),
                                sample.rollout_logprobs.end());
}

}  // namespace

TrainBatch make_train_batch(std::span<const Sample> samples, const std::string& run_id, int64_t rollout_id,
                            int64_t weight_version, const algo::GroupAdvantageOptions& options) {
  std::map<int64_t, const Sample*> by_index;
  for (const Sample& sample : samples) {
    check_sample(sample);
    if (!by_index.emplace(sample.index, &sample).second) {
      throw Error(ErrorKind::process_failed,
                  "rollout " + std::to_string(rollout_id) + ": sample " + std::to_string(sample.index) + " came twice");
    }
  }
  TrainBatch batch;
  batch.run_id = run_id;
  batch.rollout_id = rollout_id;
  batch.weight_version = weight_version;
  std::vector<std::optional<double>> rewards;
  for (const auto& [index, sample] : by_index) {
    append_sample(*sample, batch);
    rewards.push_back(sample->is_trainable() ? sample->reward : std::nullopt);
  }
  batch.advantages = algo::group_advantages(rewards, batch.group_ids, options).advantages;
  return batch;
}

void write_train_batch(const fs::path& path, const TrainBatch& batch) {
  const std::string problem = misfit(batch);
  VIME_CHECK(problem.empty(), problem);
  std::vector<tensor::TensorView> tensors;
  visit_arrays(batch, [&]<typename T>(const char* name, const std::vector<T>& values) {
    tensors.push_back({{name, dtype_of<T>(), {static_cast<int64_t>(values.size())}},
                       reinterpret_cast<const std::byte*>(values.data())});
  });
  tensor::write_safetensors(path, tensors,
                            {{"run_id", batch.run_id},
                             {"rollout_id", std::to_string(batch.rollout_id)},
                             {"weight_version", std::to_string(batch.weight_version)}});
}

TrainBatch read_train_batch(const fs::path& path, const std::string& expected_run_id) {
  const tensor::SafetensorsFile file(path);
  TrainBatch batch;
  batch.run_id = metadata_text(file, "run_id");
  if (!expected_run_id.empty() && batch.run_id != expected_run_id) {
    throw Error(ErrorKind::refused,
                path.string() + ": expected a rollout of run " + expected_run_id + ", found run " + batch.run_id);
  }
  batch.rollout_id = metadata_int(file, "rollout_id");
  batch.weight_version = metadata_int(file, "weight_version");
  visit_arrays(batch, [&](const char* name, auto& values) { read_array(file, name, values); });
  if (const std::string problem = misfit(batch); !problem.empty()) {
    throw Error(ErrorKind::refused, path.string() + ": " + problem);
  }
  return batch;
}

std::vector<int64_t> offsets(std::span<const int64_t> lengths) {
  std::vector<int64_t> starts(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}

}  // namespace vime::rollout
