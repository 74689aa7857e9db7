// What both ranks of a communicator do in tests: every operation, on numbers whose results are known.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/random.hpp"
#include "gpu/communicator.hpp"
#include "gpu/device_memory.hpp"

namespace vime::test {

constexpr uint64_t kCount = 1 << 20;

// Whole numbers, so that float sums are exact whatever their order.
inline float value_of(int rank, uint64_t i) {
  return static_cast<float>(mix_key(static_cast<uint64_t>(rank), i) % 1000);
}

class Floats {
 public:
  explicit Floats(uint64_t count) : memory_(count * sizeof(float)), count_(count) {}
  Floats(uint64_t count, const std::function<float(uint64_t)>& value) : Floats(count) {
    std::vector<float> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = value(i);
    cudaMemcpy(memory_.data(), values.data(), memory_.bytes(), cudaMemcpyHostToDevice);
  }
  std::byte* data() const { return memory_.data(); }
  uint64_t bytes() const { return memory_.bytes(); }
  uint64_t wrong(const std::function<float(uint64_t)>& value) const {
    std::vector<float> values(count_);
    cudaMemcpy(values.data(), memory_.data(), memory_.bytes(), cudaMemcpyDeviceToHost);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count_; ++i) wrong += values[i] == value(i) ? 0 : 1;
    return wrong;
  }

 private:
  gpu::DeviceMemory memory_;
  uint64_t count_;
};

inline uint64_t wrong_bf16_sums(gpu::Communicator& group, cudaStream_t stream) {
  std::vector<uint16_t> values(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {  // 0 to 7: bfloat16 and its sums are exact
    const auto value = static_cast<float>(mix_key(static_cast<uint64_t>(group.rank()), i) % 8);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    values[i] = static_cast<uint16_t>(bits >> 16);
  }
  const gpu::DeviceMemory memory(kCount * 2);
  cudaMemcpy(memory.data(), values.data(), memory.bytes(), cudaMemcpyHostToDevice);
  group.all_reduce(memory.data(), memory.data(), kCount, gpu::Scalar::bf16, gpu::Reduction::sum, stream);
  group.wait(stream);
  cudaMemcpy(values.data(), memory.data(), memory.bytes(), cudaMemcpyDeviceToHost);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint32_t bits = static_cast<uint32_t>(values[i]) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    wrong += value == static_cast<float>(mix_key(0, i) % 8 + mix_key(1, i) % 8) ? 0 : 1;
  }
  return wrong;
}

// Every operation, as both ranks do it; how many elements came out wrong.
inline uint64_t every_operation(gpu::Communicator& group) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const int rank = group.rank(), other = 1 - rank;
  const auto mine = [&](uint64_t i) { return value_of(rank, i); };
  const auto sum = [](uint64_t i) { return value_of(0, i) + value_of(1, i); };
  uint64_t wrong = 0;

  const Floats sent(kCount, mine);
  group.broadcast(sent.data(), sent.bytes(), 1, stream);
  group.wait(stream);
  wrong += sent.wrong([](uint64_t i) { return value_of(1, i); });

  const Floats own(kCount, mine), all(2 * kCount), reduced(kCount), part(kCount / 2), swapped(kCount);
  group.all_gather(own.data(), all.data(), own.bytes(), stream);
  group.all_reduce(own.data(), reduced.data(), kCount, gpu::Scalar::f32, gpu::Reduction::sum, stream);
  group.reduce_scatter(own.data(), part.data(), kCount / 2, gpu::Scalar::f32, gpu::Reduction::sum, stream);
  group.exchange({{other, own.data(), own.bytes()}}, {{other, swapped.data(), swapped.bytes()}}, stream);
  group.wait(stream);
  wrong += all.wrong([](uint64_t i) { return value_of(static_cast<int>(i / kCount), i % kCount); });
  wrong += reduced.wrong(sum);
  wrong += part.wrong([&](uint64_t i) { return sum(i + static_cast<uint64_t>(rank) * kCount / 2); });
  wrong += swapped.wrong([&](uint64_t i) { return value_of(other, i); });

  group.all_reduce(own.data(), own.data(), kCount, gpu::Scalar::f32, gpu::Reduction::max, stream);
  group.wait(stream);
  wrong += own.wrong([](uint64_t i) { return std::max(value_of(0, i), value_of(1, i)); });
  wrong += wrong_bf16_sums(group, stream);
  cudaStreamDestroy(stream);
  return wrong;
}

}  // namespace vime::test
