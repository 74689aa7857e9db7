#include "weights/checksum.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/random.hpp"

using namespace vime;
using namespace vime::weights;

namespace {

std::vector<float> random_floats(size_t count, uint64_t key) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(uniform01(mix_key(key, i)) - 0.5);
  return values;
}

const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

}  // namespace

TEST_CASE("the checksum is the sum of mix64(bits + golden * index)") {
  const std::vector<float> values = {1.0f, -2.0f};
  uint64_t expected = 0;
  for (uint64_t i = 0; i < 2; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    expected += mix64(bits + 0x9e3779b97f4a7c15ull * i);
  }
  CHECK(full_checksum({{"w", tensor::DType::f32, {2}}, bytes_of(values)}) == expected);
}

TEST_CASE("shards along any dimension add up to the full tensor's checksum") {
  const tensor::TensorInfo info{"w", tensor::DType::f32, {6, 4, 5}};
  const std::vector<float> full = random_floats(120, 7);
  const uint64_t whole = full_checksum({info, bytes_of(full)});
  for (int dim = 0; dim < 3; ++dim) {
    const int64_t size = info.shape[static_cast<size_t>(dim)];
    for (int64_t cut = 0; cut <= size; ++cut) {
      uint64_t sum = 0;
      for (const auto& [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, size}}) {
        std::vector<float> part;
        for (int64_t flat = 0; flat < 120; ++flat) {
          const int64_t index[3] = {flat / 20, flat / 5 % 4, flat % 5};
          if (index[dim] >= begin && index[dim] < end) part.push_back(full[static_cast<size_t>(flat)]);
        }
        sum += part_checksum(info, dim, begin, end, bytes_of(part));
      }
      CHECK(sum == whole);
    }
  }
}

TEST_CASE("a changed, swapped or shifted element changes the checksum") {
  const tensor::TensorInfo info{"w", tensor::DType::f32, {64}};
  std::vector<float> values = random_floats(64, 3);
  const uint64_t before = full_checksum({info, bytes_of(values)});
  std::vector<float> changed = values;
  changed[63] = -changed[63];
  CHECK(full_checksum({info, bytes_of(changed)}) != before);
  std::vector<float> swapped = values;
  std::swap(swapped[0], swapped[1]);
  CHECK(full_checksum({info, bytes_of(swapped)}) != before);
  std::rotate(values.begin(), values.begin() + 1, values.end());
  CHECK(full_checksum({info, bytes_of(values)}) != before);
}

TEST_CASE("every element size and a scalar have a checksum") {
  const std::vector<std::byte> zeros(8, std::byte{0});
  for (const auto dtype : {tensor::DType::u8, tensor::DType::bf16, tensor::DType::f32, tensor::DType::i64}) {
    CHECK(full_checksum({{"s", dtype, {}}, zeros.data()}) == mix64(0));
  }
}
