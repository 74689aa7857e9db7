// Arrays on the GPU, bf16 on the host, and comparisons with float64 references, for the tests of kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/element.hpp"

namespace vime::test {

inline double wide(gpu::Bf16 bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
inline double wide(float value) {
  return value;
}
inline double wide(double value) {
  return value;
}

// To the nearest, ties to even.
inline gpu::Bf16 narrow(double from) {
  const auto value = static_cast<float>(from);
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  return static_cast<gpu::Bf16>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

template <class T>
std::vector<double> widen(const std::vector<T>& values) {
  std::vector<double> all;
  for (const T value : values) all.push_back(wide(value));
  return all;
}

// `count` values with a guard behind them, which nothing may touch. Without contents every byte is 0xff: a NaN in every
// type.
template <class T>
class Array {
 public:
  explicit Array(size_t count) : count_(count), memory_(count * sizeof(T) + kGuard) {
    REQUIRE(cudaMemset(memory_.data(), 0xff, memory_.bytes()) == cudaSuccess);
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    REQUIRE(cudaMemcpy(memory_.data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaMemcpy(values.data(), memory_.data(), count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    std::vector<unsigned char> guard(kGuard);
    REQUIRE(cudaMemcpy(guard.data(), memory_.data() + count_ * sizeof(T), kGuard, cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    CHECK(std::all_of(guard.begin(), guard.end(), [](unsigned char byte) { return byte == 0xff; }));
    return values;
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t count_;
  gpu::DeviceMemory memory_;
};

using Random = std::mt19937_64;

inline std::vector<gpu::Bf16> random_bf16(Random& random, int64_t count, double deviation = 1.0) {
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<gpu::Bf16> values(static_cast<size_t>(count));
  for (gpu::Bf16& value : values) value = narrow(normal(random));
  return values;
}

inline std::vector<float> random_floats(Random& random, int64_t count, double deviation = 1.0) {
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(normal(random));
  return values;
}

// Half a unit in the last place of bf16, which rounding once may be off by, and a little for float32 before it.
constexpr double kRounding = 1.01 / 256;

// Every value within relative * |expected| + absolute. NaN is never close.
template <class T>
void check_close(const std::vector<T>& found, const std::vector<double>& expected, double relative, double absolute) {
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(wide(found[i]) - expected[i]);
    if (difference <= relative * std::abs(expected[i]) + absolute) continue;
    if (wrong++ == 0) first = i;
  }
  const double example = found.empty() ? 0 : wide(found[first]);
  const double reference = found.empty() ? 0 : expected[first];
  CHECK_MESSAGE(wrong == 0, wrong, " of ", found.size(), " values are off, the first at ", first, ": found ", example,
                ", expected ", reference);
}

}  // namespace vime::test
