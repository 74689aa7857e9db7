#include "vllm/packed_chunks.hpp"

#include <doctest/doctest.h>

#include "base/random.hpp"

using namespace vime;
using namespace vime::vllm;
using tensor::DType;

namespace {

std::vector<tensor::TensorInfo> of_bytes(const std::vector<int64_t>& sizes) {
  std::vector<tensor::TensorInfo> tensors;
  for (const int64_t size : sizes) tensors.push_back({"t", DType::u8, {size}});
  return tensors;
}

// Sizes of the chunks' tensors: {{60, 40, 1}, {...}}.
std::vector<std::vector<int64_t>> cut(const std::vector<tensor::TensorInfo>& tensors,
                                      const std::vector<PackedChunk>& chunks) {
  std::vector<std::vector<int64_t>> sizes;
  std::size_t next = 0;
  for (const PackedChunk& chunk : chunks) {
    CHECK(chunk.first == next);
    sizes.emplace_back();
    uint64_t offset = 0;
    for (std::size_t i = 0; i < chunk.offsets.size(); ++i) {
      CHECK(chunk.offsets[i] == offset);
      offset += tensors[next].bytes();
      sizes.back().push_back(static_cast<int64_t>(tensors[next++].bytes()));
    }
    CHECK(chunk.bytes == offset);
  }
  CHECK(next == tensors.size());
  return sizes;
}

using Sizes = std::vector<std::vector<int64_t>>;
const auto nccl = [](const std::vector<int64_t>& sizes, uint64_t buffer) {
  return cut(of_bytes(sizes), nccl_chunks(of_bytes(sizes), buffer));
};
const auto ipc = [](const std::vector<int64_t>& sizes, uint64_t buffer) {
  return cut(of_bytes(sizes), ipc_chunks(of_bytes(sizes), buffer));
};

}  // namespace

TEST_CASE("an NCCL chunk ends with the tensor that brings it above the buffer's size") {
  CHECK(nccl({60, 40, 1, 7}, 100) == Sizes{{60, 40, 1}, {7}});  // exactly full goes on
  CHECK(nccl({60, 41, 7}, 100) == Sizes{{60, 41}, {7}});
  CHECK(nccl({500, 7}, 100) == Sizes{{500}, {7}});
  CHECK(nccl({7, 500}, 100) == Sizes{{7, 500}});
  CHECK(nccl({101}, 100) == Sizes{{101}});  // nothing is left for a last chunk
  CHECK(nccl({101, 101}, 100) == Sizes{{101}, {101}});
  CHECK(nccl({60, 41, 0}, 100) == Sizes{{60, 41}, {0}});  // a broadcast of nothing is one
  CHECK(nccl({}, 100).empty());
}

TEST_CASE("an IPC chunk ends before the tensor that would bring it above the buffer's size") {
  CHECK(ipc({60, 40, 1, 7}, 100) == Sizes{{60, 40}, {1, 7}});
  CHECK(ipc({60, 41, 7}, 100) == Sizes{{60}, {41, 7}});
  CHECK(ipc({7, 500, 7, 7}, 100) == Sizes{{7}, {500}, {7, 7}});
  CHECK(ipc({500, 500}, 100) == Sizes{{500}, {500}});
  CHECK(ipc({0, 100, 0, 1}, 100) == Sizes{{0, 100, 0}, {1}});
  CHECK(ipc({}, 100).empty());
}

TEST_CASE("tensors that begin between elements are noticed, in the chunk where they lie") {
  const std::vector<tensor::TensorInfo> tensors = {
      {"a", DType::u8, {3}}, {"b", DType::bf16, {2}}, {"c", DType::f32, {1}}};
  CHECK_FALSE(is_aligned(tensors, nccl_chunks(tensors, 1000)));
  CHECK(is_aligned(tensors, nccl_chunks(tensors, 0)));  // each alone
  CHECK(is_aligned(tensors, ipc_chunks(tensors, 1)));
  const std::vector<tensor::TensorInfo> odd = {{"a", DType::bf16, {3}}, {"b", DType::f32, {1}}};
  CHECK_FALSE(is_aligned(odd, ipc_chunks(odd, 1000)));
  const std::vector<tensor::TensorInfo> even = {{"a", DType::bf16, {4}}, {"b", DType::f32, {1}}, {"c", DType::u8, {1}}};
  CHECK(is_aligned(even, ipc_chunks(even, 1000)));
}

TEST_CASE("the aligned order falls by element size and otherwise keeps the list's") {
  const DType dtypes[] = {DType::u8, DType::bf16, DType::f32, DType::f16, DType::i64, DType::i32, DType::boolean};
  std::vector<tensor::TensorInfo> tensors;
  for (std::size_t i = 0; i < 70; ++i) tensors.push_back({"t", dtypes[i % 7], {3}});
  std::vector<std::size_t> expected;
  for (const std::size_t bytes : {8u, 4u, 2u, 1u}) {
    for (std::size_t i = 0; i < 70; ++i) {
      if (tensor::element_bytes(dtypes[i % 7]) == bytes) expected.push_back(i);
    }
  }
  CHECK(aligned_order(tensors) == expected);
}

TEST_CASE("the aligned order is aligned wherever it is cut") {
  const DType dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::u8, DType::i16, DType::boolean};
  int unaligned_before = 0;
  for (uint64_t trial = 0; trial < 200; ++trial) {
    std::vector<tensor::TensorInfo> tensors, ordered;
    for (uint64_t i = 0; i < 20; ++i) {
      const uint64_t draw = mix_key(trial, i);
      tensors.push_back({"t", dtypes[draw % 6], {static_cast<int64_t>(draw / 6 % 9), 1}});
    }
    for (const std::size_t i : aligned_order(tensors)) ordered.push_back(tensors[i]);
    const uint64_t buffer = mix_key(trial, 99) % 100;
    if (!is_aligned(tensors, nccl_chunks(tensors, buffer))) ++unaligned_before;
    CHECK(is_aligned(ordered, nccl_chunks(ordered, buffer)));
    CHECK(is_aligned(ordered, ipc_chunks(ordered, buffer)));
  }
  CHECK(unaligned_before > 50);  // or the check above would say nothing
}
