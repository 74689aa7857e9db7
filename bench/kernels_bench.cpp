// Speed of the fused kernels at the shapes of a Qwen3-4B layer with 16,384 packed tokens, against the GPU's own copy of
// a gibibyte in the same run. Bytes are those that have to be read and written, each once.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/embedding_kernels.hpp"
#include "gpu/logprob_kernels.hpp"
#include "gpu/norm_kernels.hpp"
#include "gpu/optimizer_kernels.hpp"
#include "gpu/rotary_kernels.hpp"
#include "gpu/swiglu_kernels.hpp"

using namespace vime;
using gpu::Bf16;

namespace {

void require(cudaError_t result) {
  if (result != cudaSuccess) throw Error(ErrorKind::process_failed, cudaGetErrorString(result));
}

// Random values, one block of them over and over: nothing here depends on values that lie far apart.
class Data {
 public:
  Data() : noise_(kBlock * sizeof(float)), bf16_noise_(kBlock * sizeof(Bf16)) {
    std::vector<float> values(kBlock);
    for (size_t i = 0; i < kBlock; ++i) {
      // Sum of four uniform numbers: near enough to a normal one, deviation 1.
      float sum = -2;
      for (uint64_t k = 0; k < 4; ++k) sum += static_cast<float>(uniform01(mix_key(7, 4 * i + k)));
      values[i] = sum * 1.73f;
    }
    std::vector<Bf16> halves(kBlock);
    for (size_t i = 0; i < kBlock; ++i) halves[i] = static_cast<Bf16>(std::bit_cast<uint32_t>(values[i]) >> 16);
    require(cudaMemcpy(noise_.data(), values.data(), noise_.bytes(), cudaMemcpyHostToDevice));
    require(cudaMemcpy(bf16_noise_.data(), halves.data(), bf16_noise_.bytes(), cudaMemcpyHostToDevice));
  }
  Bf16* bf16(int64_t count) { return reinterpret_cast<Bf16*>(fill(count * 2, bf16_noise_)); }
  float* floats(int64_t count) { return reinterpret_cast<float*>(fill(count * 4, noise_)); }
  std::byte* upload(const void* from, size_t bytes) {
    kept_.push_back(std::make_unique<gpu::DeviceMemory>(bytes));
    require(cudaMemcpy(kept_.back()->data(), from, bytes, cudaMemcpyHostToDevice));
    return kept_.back()->data();
  }
  void clear() { kept_.clear(); }

 private:
  static constexpr size_t kBlock = (size_t{1} << 22) + 40;  // no multiple of a row
  std::byte* fill(int64_t bytes, const gpu::DeviceMemory& noise) {
    kept_.push_back(std::make_unique<gpu::DeviceMemory>(static_cast<uint64_t>(bytes)));
    for (uint64_t at = 0; at < kept_.back()->bytes(); at += noise.bytes()) {
      require(cudaMemcpy(kept_.back()->data() + at, noise.data(), std::min(noise.bytes(), kept_.back()->bytes() - at),
                         cudaMemcpyDeviceToDevice));
    }
    return kept_.back()->data();
  }
  gpu::DeviceMemory noise_, bf16_noise_;
  std::vector<std::unique_ptr<gpu::DeviceMemory>> kept_;
};

double milliseconds(const std::function<void()>& call) {
  constexpr int kRounds = 12;
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) call();
  require(cudaEventRecord(begin));
  for (int i = 0; i < kRounds; ++i) call();
  require(cudaEventRecord(end));
  require(cudaEventSynchronize(end));
  float elapsed = 0;
  require(cudaEventElapsedTime(&elapsed, begin, end));
  require(cudaEventDestroy(begin));
  require(cudaEventDestroy(end));
  return elapsed / kRounds;
}

double copy_rate = 0;  // bytes a millisecond, read and written

double report(const std::string& name, double bytes, const std::function<void()>& call) {
  const double time = milliseconds(call);
  fmt::print("{:44} {:8.4f} ms {:8.3f} GB {:8.0f} GB/s {:6.1f} % of copy\n", name, time, bytes * 1e-9,
             bytes / time * 1e-6, copy_rate == 0 ? 100.0 : 100 * bytes / time / copy_rate);
  std::fflush(stdout);
  return time;
}

void measure_copy(Data& data) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  Bf16* from = data.bf16(kBytes / 2);
  Bf16* to = data.bf16(kBytes / 2);
  const double time = report("cudaMemcpyAsync, 1 GiB", 2.0 * kBytes,
                             [&] { require(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice)); });
  copy_rate = 2.0 * kBytes / time;
  data.clear();
}

struct Shape {
  int64_t tokens = 16384, hidden = 2560, q_heads = 32, k_heads = 8, head_dim = 128, intermediate = 9728;
};

double norms(Data& data, const Shape& shape, const std::string& label) {
  const int64_t count = shape.tokens * shape.hidden;
  const double bytes = 2.0 * static_cast<double>(count);
  gpu::AddRmsNorm norm = {data.bf16(count), data.bf16(count), data.bf16(shape.hidden),
                          data.bf16(count), data.bf16(count), data.floats(shape.tokens),
                          shape.tokens,     shape.hidden,     1e-6f};
  double time = report("add + RMSNorm" + label, 4 * bytes, [&] { gpu::add_rms_norm(norm, nullptr); });
  gpu::AddRmsNormBackward back = {data.bf16(count),
                                  data.bf16(count),
                                  norm.sum,
                                  norm.weight,
                                  norm.inverse,
                                  data.bf16(count),
                                  data.floats(shape.hidden),
                                  data.floats(gpu::add_rms_norm_workspace(shape.hidden)),
                                  shape.tokens,
                                  shape.hidden};
  time += report("add + RMSNorm, backward" + label, 4 * bytes, [&] { gpu::add_rms_norm_backward(back, nullptr); });
  norm.delta = nullptr;
  report("RMSNorm alone" + label, 2 * bytes, [&] { gpu::add_rms_norm(norm, nullptr); });
  data.clear();
  return time;
}

double rotary(Data& data, const Shape& shape, bool with_norms, const std::string& label) {
  constexpr int64_t kPositions = 4096;
  const int64_t q_width = shape.q_heads * shape.head_dim;
  const int64_t k_width = shape.k_heads * shape.head_dim;
  const int64_t width = q_width + 2 * k_width;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < shape.tokens; ++i) positions.push_back(i % kPositions);
  gpu::RotaryShape spec;
  spec.tokens = shape.tokens;
  spec.head_dim = shape.head_dim;
  spec.positions = reinterpret_cast<const int64_t*>(data.upload(positions.data(), positions.size() * 8));
  spec.cos = data.floats(kPositions * shape.head_dim / 2);
  spec.sin = data.floats(kPositions * shape.head_dim / 2);
  if (with_norms) spec.q_weight = data.bf16(shape.head_dim);
  if (with_norms) spec.k_weight = data.bf16(shape.head_dim);
  spec.epsilon = 1e-6f;
  Bf16* qkv = data.bf16(shape.tokens * width);
  Bf16* d_qkv = data.bf16(shape.tokens * width);
  const gpu::Heads<Bf16> q_out = {data.bf16(shape.tokens * q_width), shape.q_heads, q_width};
  const gpu::Heads<Bf16> k_out = {data.bf16(shape.tokens * k_width), shape.k_heads, k_width};
  const gpu::Heads<const Bf16> q = {qkv, shape.q_heads, width};
  const gpu::Heads<const Bf16> k = {qkv + q_width, shape.k_heads, width};
  const double half = 2.0 * static_cast<double>(shape.tokens * (q_width + k_width));
  double time = report("rotary" + label, 2 * half, [&] { gpu::norm_and_rotate(spec, q, k, q_out, k_out, nullptr); });
  gpu::RotaryBackward work;
  work.d_q = {q_out.values, q_out.heads, q_out.stride};
  work.d_k = {k_out.values, k_out.heads, k_out.stride};
  work.d_v = {data.bf16(shape.tokens * k_width), shape.k_heads, k_width};
  work.q = q;
  work.k = k;
  work.d_q_in = {d_qkv, shape.q_heads, width};
  work.d_k_in = {d_qkv + q_width, shape.k_heads, width};
  work.d_v_in = {d_qkv + q_width + k_width, shape.k_heads, width};
  work.d_q_weight = data.floats(shape.head_dim);
  work.d_k_weight = data.floats(shape.head_dim);
  work.workspace = data.floats(gpu::norm_and_rotate_workspace(shape.head_dim));
  const double v_bytes = 2.0 * 2.0 * static_cast<double>(shape.tokens * k_width);
  time += report("rotary, backward, v copied" + label, (with_norms ? 3 : 2) * half + v_bytes,
                 [&] { gpu::norm_and_rotate_backward(spec, work, nullptr); });
  data.clear();
  return time;
}

double swiglu(Data& data, const Shape& shape, const std::string& label) {
  const int64_t width = shape.intermediate;
  const double bytes = 2.0 * static_cast<double>(shape.tokens * width);
  Bf16* gate_up = data.bf16(shape.tokens * 2 * width);
  Bf16* d_gate_up = data.bf16(shape.tokens * 2 * width);
  const gpu::Rows<Bf16> product = {data.bf16(shape.tokens * width), width};
  const gpu::Rows<const Bf16> d_product = {data.bf16(shape.tokens * width), width};
  const gpu::Swiglu in = {{gate_up, 2 * width}, {gate_up + width, 2 * width}, shape.tokens, width};
  double time = report("SwiGLU" + label, 3 * bytes, [&] { gpu::swiglu(in, product, nullptr); });
  const auto backward = [&](const gpu::Rows<Bf16>& again) {
    gpu::swiglu_backward(in, d_product, {d_gate_up, 2 * width}, {d_gate_up + width, 2 * width}, again, nullptr);
  };
  report("SwiGLU, backward" + label, 5 * bytes, [&] { backward({}); });
  time += report("SwiGLU, backward, product again" + label, 6 * bytes, [&] { backward(product); });
  data.clear();
  return time;
}

void logprobs(Data& data) {
  constexpr int64_t kRows = 4096, kVocab = 151936;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < kRows; ++i)
    targets.push_back(static_cast<int64_t>(mix_key(3, static_cast<uint64_t>(i)) % kVocab));
  gpu::Logits logits;
  logits.values = data.bf16(kRows * kVocab);
  logits.rows = kRows;
  logits.columns = logits.stride = kVocab;
  logits.targets = reinterpret_cast<const int64_t*>(data.upload(targets.data(), targets.size() * 8));
  float* parts = data.floats(gpu::kLogprobParts * kRows);
  float* logprob = data.floats(kRows);
  float* entropy = data.floats(kRows);
  float* log_sum = data.floats(kRows);
  const double bytes = 2.0 * kRows * kVocab;
  report("log-probs, 4096 x 151936", bytes, [&] {
    gpu::logprob_parts(logits, parts, nullptr);
    gpu::combine_logprob_parts(parts, 1, kRows, logprob, entropy, log_sum, nullptr);
  });
  // In place, over its own results from the second time on: values do not change what it costs.
  const float* d = data.floats(kRows);
  report("log-probs, backward", 2 * bytes,
         [&] { gpu::logprob_backward(logits, log_sum, nullptr, d, nullptr, nullptr); });
  report("log-probs, backward, with entropy", 2 * bytes,
         [&] { gpu::logprob_backward(logits, log_sum, entropy, d, d, nullptr); });
  data.clear();
}

void optimizer(Data& data) {
  constexpr int64_t kCount = int64_t{1} << 28;
  std::vector<gpu::DecayRange> ranges;
  for (int64_t i = 1; i <= 290; ++i)
    ranges.push_back({kCount / 290 * i + (i == 290 ? 290 : 0), i % 2 == 0 ? 0.1f : 0.0f});
  gpu::AdamwState state = {data.floats(kCount), data.floats(kCount), data.floats(kCount),
                           data.floats(kCount), data.bf16(kCount),   kCount};
  gpu::AdamwStep step = {1e-6f, 0.9f, 0.95f, 1e-8f};
  require(cudaMemset(state.exp_avg_sq, 0, kCount * 4));  // squares are not negative
  report("AdamW, 2^28 parameters, 290 ranges", 30.0 * kCount,
         [&] { gpu::adamw(state, step, ranges.data(), static_cast<int64_t>(ranges.size()), nullptr); });
  auto* sums = reinterpret_cast<double*>(data.floats(2 * gpu::kSquareSums + 2));
  report("sum of squares, 2^28", 4.0 * kCount,
         [&] { gpu::add_sum_of_squares(state.gradient, kCount, sums, sums + gpu::kSquareSums, nullptr); });
  data.clear();
}

// Ids as text has them: the k-th most frequent one comes 1 / k as often, so that some come a thousand times.
void embedding(Data& data, const Shape& shape) {
  constexpr int64_t kVocab = 151936;
  std::vector<std::pair<int64_t, int64_t>> tokens;
  for (int64_t i = 0; i < shape.tokens; ++i) {
    const double u = uniform01(mix_key(5, static_cast<uint64_t>(i)));
    tokens.emplace_back(static_cast<int64_t>(std::pow(static_cast<double>(kVocab), u)) - 1, i);
  }
  std::sort(tokens.begin(), tokens.end());
  std::vector<int64_t> ids, order;
  int64_t different = 0;
  for (const auto& [id, place] : tokens) {
    if (ids.empty() || ids.back() != id) ++different;
    ids.push_back(id);
    order.push_back(place);
  }
  gpu::EmbeddingGradient gradient;
  gradient.rows = data.bf16(shape.tokens * shape.hidden);
  gradient.table = data.floats(kVocab * shape.hidden);
  gradient.sorted_ids = reinterpret_cast<const int64_t*>(data.upload(ids.data(), ids.size() * 8));
  gradient.order = reinterpret_cast<const int64_t*>(data.upload(order.data(), order.size() * 8));
  gradient.tokens = shape.tokens;
  gradient.width = shape.hidden;
  report(fmt::format("embedding gradient, {} ids", different),
         2.0 * static_cast<double>(shape.tokens * shape.hidden) + 8.0 * static_cast<double>(different * shape.hidden),
         [&] { gpu::add_embedding_gradient(gradient, nullptr); });
  data.clear();
}

void measure() {
  gpu::select_device(gpu::device_uuid(0));
  Data data;
  measure_copy(data);
  const Shape shape;
  const double layer = 2 * norms(data, shape, "") + rotary(data, shape, true, ", q/k norms") + swiglu(data, shape, "");
  rotary(data, shape, false, ", no norms");
  logprobs(data);
  optimizer(data);
  embedding(data, shape);
  Shape decode;
  decode.tokens = 256;
  decode.hidden = 1024;
  decode.q_heads = 16;
  decode.intermediate = 3072;
  norms(data, decode, ", 256 x 1024");
  rotary(data, decode, true, ", 256 tokens");
  swiglu(data, decode, ", 256 x 3072");
  fmt::print(
      "a layer, forward and backward: {:.3f} ms (two norms, q/k norms and rotary, SwiGLU with its product again)\n",
      layer);
}

}  // namespace

int main() {
  try {
    measure();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "kernels_bench: {}\n", error.what());
    return 1;
  }
}
