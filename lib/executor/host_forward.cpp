#include "executor/host_forward.hpp"

#include <torch/utils.h>
#include <algorithm>
#include <cstring>

#include "executor/sampling.hpp"

namespace vime::executor {
namespace {

KvShape cache_shape(const arch::ModelConfig& config, int tp_size, const ForwardShape& shape) {
  const int64_t kv_heads = std::max<int64_t>(config.num_key_value_heads / tp_size, 1);
  return {config.num_hidden_layers, shape.slots, kv_heads, shape.max_model_len, config.head_dim};
}

torch::Tensor as_floats(const torch::Tensor& tensor) {
  return tensor.to(torch::kFloat32).contiguous();
}

}  // namespace

HostForward::HostForward(model::Decoder& decoder, int tp_size, const ForwardShape& shape)
    : decoder_(decoder),
      shape_(shape),
      cache_(cache_shape(decoder.config(), tp_size, shape)),
      scores_(static_cast<std::size_t>(shape.max_model_len)) {}

// Keys and values of the whole block are stored before any of its rows attends: a later row of a sequence sees the
// earlier ones.
void HostForward::store(int layer, const torch::Tensor& k, const torch::Tensor& v, const engine::TokenRow* rows,
                        int64_t count) {
  const KvShape& shape = cache_.shape();
  const auto bytes = static_cast<std::size_t>(shape.head_dim) * sizeof(float);
  const float* keys = k.data_ptr<float>();
  const float* values = v.data_ptr<float>();
  for (int64_t row = 0; row < count; ++row) {
    const int64_t offset = rows[row].position * shape.head_dim;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t from = (row * shape.kv_heads + head) * shape.head_dim;
      std::memcpy(cache_.keys(layer, rows[row].slot, head) + offset, keys + from, bytes);
      std::memcpy(cache_.values(layer, rows[row].slot, head) + offset, values + from, bytes);
    }
  }
}

torch::Tensor HostForward::attention(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                     const engine::TokenRow* rows, int64_t count) {
  store(layer, as_floats(k), as_floats(v), rows, count);
  const KvShape& shape = cache_.shape();
  const torch::Tensor queries = as_floats(q);  // [rows per block, heads, head_dim]
  const int64_t heads = queries.size(1);
  const int64_t group = heads / shape.kv_heads;
  torch::Tensor out = torch::zeros_like(queries);  // padding rows attend to nothing
  const float* from = queries.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = (row * heads + head) * shape.head_dim;
      attend(from + at, cache_.keys(layer, rows[row].slot, head / group),
             cache_.values(layer, rows[row].slot, head / group), rows[row].position + 1, shape.head_dim, scores_.data(),
             to + at);
    }
  }
  return out.to(q.scalar_type());
}

torch::Tensor HostForward::hidden(const engine::TokenRow* rows, int64_t count) {
  torch::Tensor ids = torch::zeros({shape_.rows_per_block}, torch::kInt64);
  torch::Tensor positions = torch::zeros({shape_.rows_per_block}, torch::kInt64);
  for (int64_t row = 0; row < count; ++row) {
    const engine::TokenRow& token = rows[row];
    VIME_CHECK(token.slot >= 0 && token.slot < shape_.slots, "slot " + std::to_string(token.slot) + " does not exist");
    VIME_CHECK(token.position >= 0 && token.position < shape_.max_model_len,
               "position " + std::to_string(token.position) + " is outside the slot");
    ids.data_ptr<int64_t>()[row] = token.token;
    positions.data_ptr<int64_t>()[row] = token.position;
  }
  return decoder_.hidden_states(ids, positions,
                                [&](int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
                                  return attention(layer, q, k, v, rows, count);
                                });
}

std::vector<engine::Sampled> HostForward::run(const engine::Batch& batch, bool draws) {
  const torch::NoGradGuard no_grad;
  std::vector<engine::Sampled> sampled;
  const auto total = static_cast<int64_t>(batch.rows.size());
  std::size_t next = 0;
  for (int64_t begin = 0; begin < total; begin += shape_.rows_per_block) {
    const int64_t end = std::min(begin + shape_.rows_per_block, total);
    const torch::Tensor states = hidden(batch.rows.data() + begin, end - begin);
    if (next == batch.samples.size() || batch.samples[next].row >= end) continue;
    const torch::Tensor logits = decoder_.logits(states).contiguous();
    for (; next < batch.samples.size() && batch.samples[next].row < end; ++next) {
      VIME_CHECK(batch.samples[next].row >= begin, "samples are in the order of their rows");
      if (!draws) continue;
      const float* row = logits.data_ptr<float>() + (batch.samples[next].row - begin) * logits.size(1);
      const engine::SampleSpec& spec = batch.samples[next];
      sampled.push_back(spec.forced >= 0 ? look_up(row, logits.size(1), spec.forced)
                                         : draw(row, logits.size(1), spec, shape_.logprobs_mode));
    }
  }
  return sampled;
}

torch::Tensor HostForward::logits(const std::vector<engine::TokenRow>& rows) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> blocks;
  const auto total = static_cast<int64_t>(rows.size());
  for (int64_t begin = 0; begin < total; begin += shape_.rows_per_block) {
    const int64_t count = std::min(shape_.rows_per_block, total - begin);
    blocks.push_back(decoder_.logits(hidden(rows.data() + begin, count)).slice(0, 0, count).clone());
  }
  return torch::cat(blocks);
}

}  // namespace vime::executor
