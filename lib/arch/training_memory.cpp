#include "arch/training_memory.hpp"

#include <algorithm>

namespace vime::arch {
namespace {

constexpr uint64_t kLibraries = uint64_t{96} << 20;  // cuBLAS's workspaces and the allocator's small blocks

struct Widths {
  int64_t hidden, heads, q, kv, inner, vocabulary;  // of this rank's part, elements of a token
  int64_t stream;       // of the residual stream: a share of hidden under tensor parallelism
  int64_t gathered_kv;  // keys and values of all context-parallel ranks beyond this one's
};

// Bytes of a token that a layer keeps.
int64_t kept_by_layer(const Widths& w, Recompute recompute, int64_t size) {
  if (recompute == Recompute::full) return size * w.stream;
  // Both sums of the residual stream; q, k and v before the rotation, q and k after it; attention's output and its
  // float32 sums; gate and up.
  const int64_t selective =
      size * (2 * w.stream + (w.q + 2 * w.kv) + (w.q + w.kv) + w.gathered_kv + w.q + 2 * w.inner) + 4 * w.heads + 8;
  // Norms whose results the ranks gather are kept: to make them again would be to gather again.
  const int64_t norms = w.stream < w.hidden ? size * 2 * w.hidden : 0;
  if (recompute == Recompute::selective) return selective + norms;
  return selective + size * (2 * w.hidden + w.inner);  // what norms and SwiGLU made
}

}  // namespace

TrainingMemory training_memory(const ModelConfig& config, const TrainingWork& work) {
  const auto size = static_cast<int64_t>(tensor::element_bytes(work.dtype));
  const int64_t tp = work.tp_size;
  const Widths w{config.hidden_size,
                 config.num_attention_heads / tp,
                 config.num_attention_heads * config.head_dim / tp,
                 std::max<int64_t>(config.num_key_value_heads / tp, 1) * config.head_dim,
                 config.intermediate_size / tp,
                 (config.vocab_size + tp - 1) / tp,
                 config.hidden_size / tp,
                 2 * std::max<int64_t>(config.num_key_value_heads / tp, 1) * config.head_dim * (work.cp_size - 1)};
  TrainingMemory memory;
  memory.weights = arena_layout(config, work.dtype, work.tp_rank, work.tp_size, work.stage).total_bytes;
  const uint64_t elements = memory.weights / static_cast<uint64_t>(size);
  const auto sharers = static_cast<uint64_t>(work.sharers);
  const uint64_t part = (elements + sharers - 1) / sharers;
  memory.gradients = 4 * elements;
  memory.sums = work.sharers > 1 ? 4 * part : 0;
  if (work.reference) memory.weights *= 2;
  memory.master = work.dtype == tensor::DType::f32 ? 0 : 4 * part;
  memory.moments = 4 * static_cast<uint64_t>(work.moments) * part;

  const int64_t layers = work.stage.end - work.stage.begin;
  const int64_t stream = size * w.stream * work.tokens;  // bytes of the residual stream
  memory.activations =
      static_cast<uint64_t>(work.in_flight * (layers * kept_by_layer(w, work.recompute, size) * work.tokens + stream));
  // A layer's backward pass: the product that enters the down projection and its gradient, the gradient of gate and up,
  // the gradient of the stream; with whole layers computed again, their activations on top.
  int64_t of_layer = size * 4 * w.inner * work.tokens + 2 * stream;
  if (work.recompute == Recompute::full) of_layer += kept_by_layer(w, Recompute::none, size) * work.tokens;
  int64_t of_head = 0;
  if (work.stage.last())  // a chunk of logits; the rows of the head, and their gradient
    of_head = size * std::min(work.head_chunk, work.tokens) * w.vocabulary + 3 * stream;
  memory.transient = static_cast<uint64_t>(std::max(of_layer, of_head));
  memory.libraries = kLibraries;
  return memory;
}

}  // namespace vime::arch
