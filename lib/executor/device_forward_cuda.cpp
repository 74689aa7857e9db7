#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "executor/device_forward.hpp"
#include "executor/device_step.hpp"
#include "executor/sampling.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/kv_kernels.hpp"
#include "gpu/pinned_memory.hpp"
#include "gpu/reserved_memory.hpp"
#include "gpu/sampling_kernels.hpp"
#include "model/linear.hpp"
#include "model/torch_device.hpp"

namespace vime::executor {
namespace {

// Rows whose logits exist at a time: float32 rows over a large vocabulary are what takes most of the workspace.
constexpr int64_t kHeadRows = 512;
// Banned ids of one sample that a captured step has room for; steps with more are not replayed.
constexpr int64_t kBannedRoom = 8;
// Of the free memory, what the KV cache may take.
constexpr double kLargestPart = 0.95;

// Sizes that graphs are captured for: 1, 2, 4, 8, and then every eighth.
int64_t captured_size(int64_t rows, int64_t most) {
  int64_t size = 1;
  while (size < rows && size < 8) size *= 2;
  if (size < rows) size = (rows + 7) / 8 * 8;
  return std::min(size, most);
}

gpu::KvType kv_type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kBFloat16:
      return gpu::KvType::bf16;
    case torch::kFloat16:
      return gpu::KvType::f16;
    case torch::kFloat32:
      return gpu::KvType::f32;
    default:
      throw Error(ErrorKind::refused, std::string("an engine on a GPU cannot run ") + c10::toString(type) + " weights");
  }
}

// Each row in one piece, the rows at any distance: [rows, heads, head_dim].
torch::Tensor packed_rows(const torch::Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) ? x : x.contiguous();
}

// The arrays of a step on both sides.
struct StepMemory {
  StepMemory(uint64_t in_bytes, int64_t samples)
      : in_host(in_bytes),
        in_device(in_bytes),
        out_host(static_cast<uint64_t>(samples) * sizeof(gpu::DrawnRow)),
        out_device(out_host.bytes()) {}

  gpu::PinnedMemory in_host;
  gpu::DeviceMemory in_device;
  gpu::PinnedMemory out_host;
  gpu::DeviceMemory out_device;
};

class DeviceForward final : public Forward {
 public:
  DeviceForward(model::Decoder& decoder, const DeviceForwardOptions& options);

  int64_t slots() const override { return slots_; }
  std::vector<engine::Sampled> run(const engine::Batch& batch, bool draws) override;
  torch::Tensor logits(const std::vector<engine::TokenRow>& rows) override;
  int64_t replayed_steps() const override { return replayed_steps_; }
  void sleep() override;
  void wake() override { cache_->commit(); }

 private:
  void warm_up();
  uint64_t taken_for_sure() const;
  uint64_t taken(uint64_t free_before, const gpu::MemoryInfo& now) const;
  void size_cache(const DeviceForwardOptions& options);
  RowWise row_wise() const;
  void check(const engine::Batch& batch) const;
  bool can_replay(const engine::Batch& batch, const StepSizes& sizes) const;
  at::cuda::CUDAGraph& graph_for(int64_t size, const StepLayout& layout, bool draws);

  // The work of a step whose arrays lie in `memory`, given to the stream, from the copy in to the copy out.
  void launch(const StepLayout& layout, StepMemory& memory, bool draws);
  torch::Tensor hidden(const StepLayout& layout, std::byte* arrays);
  torch::Tensor attend(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                       const StepLayout& layout, std::byte* arrays);
  torch::Tensor attend_spans(const torch::Tensor& q, int layer, const StepLayout& layout, std::byte* arrays);
  torch::Tensor drawn_from(const torch::Tensor& states);
  std::vector<engine::Sampled> results(const engine::Batch& batch, const StepMemory& memory) const;

  template <typename T>
  torch::Tensor array(std::byte* arrays, uint64_t offset, int64_t count) const {
    const auto options = torch::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value).device(decoder_.device());
    return torch::from_blob(arrays + offset, {count}, options);
  }
  std::byte* layer_keys(int layer) const { return cache_->data() + static_cast<uint64_t>(2 * layer) * layer_bytes_; }
  std::byte* layer_values(int layer) const { return layer_keys(layer) + layer_bytes_; }

  model::Decoder& decoder_;
  ForwardShape shape_;
  int64_t rows_per_step_;
  bool deterministic_;
  bool graphs_on_;
  torch::ScalarType type_;
  gpu::KvType kv_type_;
  gpu::KvShape kv_;
  int64_t heads_ = 0;
  int64_t slots_ = 0;
  uint64_t layer_bytes_ = 0;  // keys of one layer, or values
  c10::cuda::CUDAStream stream_;
  std::unique_ptr<gpu::ReservedMemory> cache_;  // [layer][keys, values][slot][position][kv head][head_dim]
  torch::Tensor attention_workspace_;
  torch::Tensor draw_workspace_;
  std::unique_ptr<StepMemory> step_memory_;   // of steps that are not replayed
  std::unique_ptr<StepMemory> graph_memory_;  // its addresses are in the graphs
  std::map<std::pair<int64_t, bool>, std::unique_ptr<at::cuda::CUDAGraph>> graphs_;
  at::cuda::MempoolId_t graph_pool_;
  int64_t replayed_steps_ = 0;
};

// Where a replayed step lies: the arrays' places depend on its size alone.
StepSizes graph_sizes(int64_t size, RowWise row_wise) {
  StepSizes sizes;
  sizes.rows = size;
  sizes.row_wise = row_wise == RowWise::none ? 0 : size;
  sizes.spans = size - sizes.row_wise;
  sizes.longest = sizes.spans > 0 ? 1 : 0;
  sizes.samples = size;
  sizes.banned = size * kBannedRoom;
  return sizes;
}

DeviceForward::DeviceForward(model::Decoder& decoder, const DeviceForwardOptions& options)
    : decoder_(decoder),
      shape_(options.shape),
      rows_per_step_(options.rows_per_step),
      deterministic_(options.deterministic),
      graphs_on_(options.graphs),
      type_(decoder.parameters().front().value.scalar_type()),
      kv_type_(kv_type_of(type_)),
      stream_(c10::cuda::getStreamFromPool(false, decoder.device().index())),
      graph_pool_(at::cuda::graph_pool_handle()) {
  const arch::ModelConfig& config = decoder_.config();
  const int64_t ranks = decoder_.tensor_parallel()->size();
  heads_ = config.num_attention_heads / ranks;
  kv_ = {shape_.max_model_len, std::max<int64_t>(config.num_key_value_heads / ranks, 1), config.head_dim};
  const c10::cuda::CUDAStreamGuard on(stream_);
  const torch::NoGradGuard no_grad;
  warm_up();
  size_cache(options);
}

// Everything of the size that steps will need is taken once, so that what is free then is the KV cache's to take.
void DeviceForward::warm_up() {
  const auto positions = torch::tensor({shape_.max_model_len - 1}, torch::kInt64);
  decoder_.check_tokens(torch::zeros_like(positions), positions);
  const auto bytes = torch::TensorOptions().dtype(torch::kUInt8).device(decoder_.device());
  const auto space = [&](uint64_t count) { return torch::empty({static_cast<int64_t>(count)}, bytes); };
  attention_workspace_ = space(gpu::attend_workspace_bytes(shape_.slots, heads_, kv_));
  draw_workspace_ = space(gpu::draw_workspace_bytes(kHeadRows, decoder_.config().vocab_size));
  const StepLayout replayed(graph_sizes(shape_.slots, row_wise()));
  graph_memory_ = std::make_unique<StepMemory>(replayed.bytes, shape_.slots);
  step_memory_ = std::make_unique<StepMemory>(replayed.bytes, shape_.slots);
  const torch::Tensor ids = torch::zeros({rows_per_step_}, torch::kInt64).to(decoder_.device());
  const torch::Tensor states = decoder_.final_norm(decoder_.run_layers(
      decoder_.embed(ids), ids,
      [](int, const torch::Tensor& q, const torch::Tensor&, const torch::Tensor&) { return q.clone(); }));
  decoder_.logits(states.slice(0, 0, std::min({kHeadRows, rows_per_step_})));
  gpu::synchronize();
}

// By this process: weights, and what LibTorch has for the sizes of a step.
uint64_t DeviceForward::taken_for_sure() const {
  return decoder_.layout().total_bytes + model::torch_memory(decoder_.device()).peak_used_bytes;
}

// Likewise, with contexts and libraries. What others gave back meanwhile hides what this process took, but not that it
// has the weights at least; what others took meanwhile is not to be told from its own, and so it is no measure where
// many processes start on one GPU.
uint64_t DeviceForward::taken(uint64_t free_before, const gpu::MemoryInfo& now) const {
  return std::max(std::max(free_before, now.free_bytes) - now.free_bytes, decoder_.layout().total_bytes);
}

void DeviceForward::size_cache(const DeviceForwardOptions& options) {
  const int64_t layers = decoder_.config().num_hidden_layers;
  const auto slot_bytes = static_cast<uint64_t>(kv_.positions * kv_.kv_heads * kv_.head_dim) * c10::elementSize(type_);
  const uint64_t all_layers = 2 * static_cast<uint64_t>(layers) * slot_bytes;
  const gpu::MemoryInfo info = gpu::memory_info();
  const int sharing = gpu::devices_on_gpu();
  const auto own = static_cast<double>(sharing > 1 ? taken_for_sure() : taken(options.free_before, info));
  const double most = options.memory_utilization * static_cast<double>(info.total_bytes) / sharing;
  const double room = std::min(kLargestPart * static_cast<double>(info.free_bytes), most - own);
  slots_ = std::min(shape_.slots, static_cast<int64_t>(std::max(room, 0.0) / static_cast<double>(all_layers)));
  if (slots_ < 1) {
    throw Error(ErrorKind::exhausted,
                "the KV cache of one sequence of " + std::to_string(kv_.positions) + " tokens takes " +
                    format_bytes(all_layers) + ", and " + format_bytes(static_cast<uint64_t>(std::max(room, 0.0))) +
                    " are left for it (" + format_bytes(info.free_bytes) + " of " + format_bytes(info.total_bytes) +
                    " are free)",
                "lower max_model_len, or give the engine more of the GPU's memory");
  }
  layer_bytes_ = static_cast<uint64_t>(slots_) * slot_bytes;
  cache_ = std::make_unique<gpu::ReservedMemory>(static_cast<uint64_t>(slots_) * all_layers);
  cache_->commit();
  log::info("executor", "KV cache of " + std::to_string(slots_) + " sequences of " + std::to_string(kv_.positions) +
                            " tokens, " + format_bytes(cache_->bytes()));
}

RowWise DeviceForward::row_wise() const {
  // Flash attention takes 16-bit types only.
  if (kv_type_ == gpu::KvType::f32) return RowWise::all;
  return deterministic_ ? RowWise::none : RowWise::leading;
}

void DeviceForward::check(const engine::Batch& batch) const {
  for (const engine::TokenRow& row : batch.rows) {
    VIME_CHECK(row.slot >= 0 && row.slot < slots_, "slot " + std::to_string(row.slot) + " does not exist");
    VIME_CHECK(row.position >= 0 && row.position < kv_.positions,
               "position " + std::to_string(row.position) + " is outside the slot");
    VIME_CHECK(row.token >= 0 && row.token < decoder_.config().vocab_size,
               "token " + std::to_string(row.token) + " is outside the vocabulary");
  }
}

bool DeviceForward::can_replay(const engine::Batch& batch, const StepSizes& sizes) const {
  if (!graphs_on_ || sizes.rows > slots_ || sizes.samples != sizes.rows) return false;
  if (sizes.banned > captured_size(sizes.rows, shape_.slots) * kBannedRoom) return false;
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    if (batch.samples[i].row != static_cast<int32_t>(i)) return false;
    // Rows of one sequence see each other only where attention goes row by row.
    if (i > 0 && batch.rows[i].slot == batch.rows[i - 1].slot) return false;
  }
  return true;
}

torch::Tensor DeviceForward::attend_spans(const torch::Tensor& q, int layer, const StepLayout& layout,
                                          std::byte* arrays) {
  const StepSizes& sizes = layout.sizes;
  const auto options = torch::TensorOptions().dtype(type_).device(decoder_.device());
  const auto cache = [&](std::byte* at) {
    return torch::from_blob(at, {slots_ * kv_.positions, kv_.kv_heads, kv_.head_dim}, options);
  };
  // A longest query of one would take the kernel that splits the keys, whose sums have another order.
  const int64_t longest = std::max<int64_t>(sizes.longest, 2);
  return std::get<0>(at::_flash_attention_forward(q, cache(layer_keys(layer)), cache(layer_values(layer)),
                                                  array<int32_t>(arrays, layout.query_starts, sizes.spans + 1),
                                                  array<int32_t>(arrays, layout.key_starts, sizes.spans + 1), longest,
                                                  kv_.positions, 0.0, true, false, std::nullopt, std::nullopt,
                                                  std::nullopt, array<int32_t>(arrays, layout.used_keys, sizes.spans)));
}

torch::Tensor DeviceForward::attend(int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                    const StepLayout& layout, std::byte* arrays) {
  const StepSizes& sizes = layout.sizes;
  const torch::Tensor queries = q.contiguous(), keys = packed_rows(k), values = packed_rows(v);
  gpu::KvRows rows{sizes.rows, reinterpret_cast<const int32_t*>(arrays + layout.slots),
                   reinterpret_cast<const int32_t*>(arrays + layout.lengths)};
  gpu::store_kv(keys.data_ptr(), keys.stride(0), values.data_ptr(), values.stride(0), layer_keys(layer),
                layer_values(layer), rows, kv_, kv_type_, stream_.stream());
  if (sizes.row_wise == 0) return attend_spans(queries, layer, layout, arrays);
  torch::Tensor out = torch::empty_like(queries);
  rows.count = sizes.row_wise;
  gpu::attend_rows(queries.data_ptr(), layer_keys(layer), layer_values(layer), out.data_ptr(),
                   attention_workspace_.data_ptr(), rows, heads_, kv_, kv_type_, stream_.stream());
  if (sizes.spans > 0) {
    out.slice(0, sizes.row_wise).copy_(attend_spans(queries.slice(0, sizes.row_wise), layer, layout, arrays));
  }
  return out;
}

torch::Tensor DeviceForward::hidden(const StepLayout& layout, std::byte* arrays) {
  const torch::Tensor ids = array<int64_t>(arrays, layout.ids, layout.sizes.rows);
  const torch::Tensor positions = array<int64_t>(arrays, layout.positions, layout.sizes.rows);
  return decoder_.final_norm(
      decoder_.run_layers(decoder_.embed(ids), positions,
                          [&](int layer, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
                            return attend(layer, q, k, v, layout, arrays);
                          }));
}

// Logits as draws take them: what decoder_.logits() gives, without the copy in float32 where it can be spared.
torch::Tensor DeviceForward::drawn_from(const torch::Tensor& states) {
  if (type_ != torch::kBFloat16 || decoder_.tensor_parallel()->size() > 1) return decoder_.logits(states).contiguous();
  return model::product(states, decoder_.head(), decoder_.rows_per_product());
}

void DeviceForward::launch(const StepLayout& layout, StepMemory& memory, bool draws) {
  gpu::copy_memory(memory.in_device.data(), memory.in_host.data(), layout.bytes, stream_.stream());
  std::byte* const arrays = memory.in_device.data();
  const torch::Tensor states = hidden(layout, arrays);
  const int64_t samples = layout.sizes.samples;
  const torch::Tensor sample_rows = array<int64_t>(arrays, layout.sample_rows, samples);
  for (int64_t begin = 0; begin < samples; begin += kHeadRows) {
    const int64_t end = std::min(begin + kHeadRows, samples);
    const torch::Tensor logits = drawn_from(states.index_select(0, sample_rows.slice(0, begin, end)));
    if (!draws) continue;
    const bool narrow = logits.scalar_type() == torch::kBFloat16;
    gpu::draw_rows(logits.data_ptr(), narrow ? gpu::LogitType::bf16 : gpu::LogitType::f32, end - begin, logits.size(1),
                   reinterpret_cast<const gpu::SampleRow*>(arrays + layout.settings) + begin,
                   reinterpret_cast<const int32_t*>(arrays + layout.banned), shape_.logprobs_mode == LogprobsMode::raw,
                   draw_workspace_.data_ptr(), reinterpret_cast<gpu::DrawnRow*>(memory.out_device.data()) + begin,
                   stream_.stream());
  }
  if (draws && samples > 0) {
    gpu::copy_memory(memory.out_host.data(), memory.out_device.data(),
                     static_cast<uint64_t>(samples) * sizeof(gpu::DrawnRow), stream_.stream());
  }
}

at::cuda::CUDAGraph& DeviceForward::graph_for(int64_t size, const StepLayout& layout, bool draws) {
  auto& graph = graphs_[{size, draws}];
  if (graph) return *graph;
  // Once before it is captured: libraries load kernels and take workspace on first use.
  launch(layout, *graph_memory_, draws);
  stream_.synchronize();
  auto captured = std::make_unique<at::cuda::CUDAGraph>();
  captured->capture_begin(graph_pool_, cudaStreamCaptureModeThreadLocal);
  launch(layout, *graph_memory_, draws);
  captured->capture_end();
  graph = std::move(captured);
  return *graph;
}

std::vector<engine::Sampled> DeviceForward::results(const engine::Batch& batch, const StepMemory& memory) const {
  const auto* const drawn = reinterpret_cast<const gpu::DrawnRow*>(memory.out_host.data());
  std::vector<engine::Sampled> sampled;
  sampled.reserve(batch.samples.size());
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const gpu::DrawnRow& row = drawn[i];
    if (row.bad_token >= 0) refuse_logit(row.bad_token, row.bad_logit);
    if (row.token < 0) refuse_bans();
    sampled.push_back({row.token, row.logprob, row.rank, row.top_token, row.top_logprob});
  }
  return sampled;
}

std::vector<engine::Sampled> DeviceForward::run(const engine::Batch& batch, bool draws) {
  check(batch);
  const torch::NoGradGuard no_grad;
  const c10::cuda::CUDAStreamGuard on(stream_);
  const StepSizes sizes = sizes_of(batch, row_wise());
  if (can_replay(batch, sizes)) {
    const int64_t size = captured_size(sizes.rows, shape_.slots);
    const StepLayout layout(graph_sizes(size, row_wise()));
    fill_step(batch, layout, kv_.positions, graph_memory_->in_host.data());
    graph_for(size, layout, draws).replay();
    ++replayed_steps_;
    stream_.synchronize();
    return draws ? results(batch, *graph_memory_) : std::vector<engine::Sampled>{};
  }
  const StepLayout layout(sizes);
  const auto out_bytes = static_cast<uint64_t>(sizes.samples) * sizeof(gpu::DrawnRow);
  if (layout.bytes > step_memory_->in_host.bytes() || out_bytes > step_memory_->out_host.bytes()) {
    step_memory_ = std::make_unique<StepMemory>(2 * layout.bytes, 2 * sizes.samples + 1);
  }
  fill_step(batch, layout, kv_.positions, step_memory_->in_host.data());
  launch(layout, *step_memory_, draws);
  stream_.synchronize();
  return draws ? results(batch, *step_memory_) : std::vector<engine::Sampled>{};
}

torch::Tensor DeviceForward::logits(const std::vector<engine::TokenRow>& rows) {
  const engine::Batch batch{rows, {}};
  check(batch);
  const torch::NoGradGuard no_grad;
  const c10::cuda::CUDAStreamGuard on(stream_);
  const StepLayout layout(sizes_of(batch, row_wise()));
  StepMemory memory(layout.bytes, 1);
  fill_step(batch, layout, kv_.positions, memory.in_host.data());
  gpu::copy_memory(memory.in_device.data(), memory.in_host.data(), layout.bytes, stream_.stream());
  const torch::Tensor states = hidden(layout, memory.in_device.data());
  std::vector<torch::Tensor> blocks;
  for (int64_t begin = 0; begin < states.size(0); begin += kHeadRows) {
    blocks.push_back(decoder_.logits(states.slice(0, begin, std::min(begin + kHeadRows, states.size(0)))).cpu());
  }
  return torch::cat(blocks);
}

void DeviceForward::sleep() {
  gpu::synchronize();
  cache_->release();
  c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace

std::unique_ptr<Forward> make_device_forward(model::Decoder& decoder, const DeviceForwardOptions& options) {
  return std::make_unique<DeviceForward>(decoder, options);
}

}  // namespace vime::executor
