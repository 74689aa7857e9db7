// The copy kernel against the CPU's copies and checksums: random shapes, shards, alignments, dtypes.
#include "gpu/copies.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "channels/shard_copies.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/raw_copy.hpp"
#include "gpu/streams.hpp"
#include "weights/checksum.hpp"

using namespace vime;
using tensor::DType;

namespace {

// Memory on both sides.
struct Twin {
  std::vector<std::byte> host;
  gpu::DeviceMemory device;

  Twin(uint64_t bytes, uint64_t seed) : host(bytes), device(bytes) {
    for (uint64_t i = 0; i < bytes; ++i) host[i] = static_cast<std::byte>(mix_key(seed, i));
    upload();
  }
  void upload() { cudaMemcpy(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice); }
  std::vector<std::byte> download() const {
    std::vector<std::byte> bytes(host.size());
    cudaMemcpy(bytes.data(), device.data(), bytes.size(), cudaMemcpyDeviceToHost);
    return bytes;
  }
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t end) { return mix_key(seed_, count_++) % end; }

 private:
  uint64_t seed_, count_ = 0;
};

// A tensor with one part of it, at places that are aligned to the element only, or better.
struct Case {
  tensor::TensorInfo info;
  arch::Shard shard;
  uint64_t whole = 0, part = 0;  // byte offsets
};

Case draw_case(Draws& draws, DType dtype, uint64_t& whole_end, uint64_t& part_end) {
  Case drawn;
  const bool wide = draws.below(4) == 0;
  const int64_t rows = static_cast<int64_t>(1 + draws.below(wide ? 700 : 70));
  const int64_t columns = static_cast<int64_t>(1 + draws.below(wide ? 3000 : 130));
  drawn.info = {"t", dtype, {rows, columns}};
  if (draws.below(5) == 0) drawn.info.shape = {rows * columns};
  drawn.shard.dim = drawn.info.shape.size() == 2 ? static_cast<int>(draws.below(2)) : 0;
  const auto size = static_cast<uint64_t>(drawn.info.shape[static_cast<size_t>(drawn.shard.dim)]);
  drawn.shard.begin = static_cast<int64_t>(draws.below(3) == 0 ? 0 : draws.below(size + 1));
  drawn.shard.end =
      drawn.shard.begin + static_cast<int64_t>(draws.below(size + 1 - static_cast<uint64_t>(drawn.shard.begin)));
  if (draws.below(3) == 0) drawn.shard = {drawn.shard.dim, 0, static_cast<int64_t>(size), 0, {}};
  drawn.shard.shape = drawn.info.shape;
  drawn.shard.shape[static_cast<size_t>(drawn.shard.dim)] = drawn.shard.end - drawn.shard.begin;
  const uint64_t element = tensor::element_bytes(dtype);
  const auto place = [&](uint64_t& end) {
    const uint64_t alignment = draws.below(2) == 0 ? 64 : element;
    end = (end + alignment - 1) / alignment * alignment;
    return end;
  };
  drawn.whole = place(whole_end);
  whole_end += drawn.info.bytes();
  drawn.part = place(part_end);
  part_end += static_cast<uint64_t>(tensor::element_count(drawn.shard.shape)) * element;
  return drawn;
}

float as_float(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

TEST_CASE("parts of tensors are cut out, put back and summed as on the CPU, whatever their shape and place") {
  gpu::select_device(gpu::device_uuid(0));
  for (const DType dtype : {DType::bf16, DType::f32, DType::u8, DType::i64}) {
    for (const bool sums : {false, true}) {
      CAPTURE(tensor::dtype_name(dtype));
      CAPTURE(sums);
      Draws draws(static_cast<uint64_t>(dtype) * 2 + sums);
      std::vector<Case> cases;
      uint64_t whole_end = 0, part_end = 0;
      for (int i = 0; i < 60; ++i) cases.push_back(draw_case(draws, dtype, whole_end, part_end));
      Twin whole(whole_end + 64, 1), part(part_end + 64, 2), back(whole_end + 64, 3);
      std::vector<gpu::Copy> cut, put;
      std::vector<uint64_t> expected;
      for (const Case& one : cases) {
        cut.push_back(channels::copy_of_overlap(whole.device.data() + one.whole, dtype,
                                                arch::whole_of(one.info, one.shard), one.info, one.shard,
                                                part.device.data() + one.part));
        put.push_back(channels::copy_into_whole(part.device.data() + one.part, one.info, one.shard,
                                                back.device.data() + one.whole));
        arch::copy_shard(whole.host.data() + one.whole, one.info, one.shard, part.host.data() + one.part);
        arch::place_shard(part.host.data() + one.part, one.info, one.shard, back.host.data() + one.whole);
        expected.push_back(weights::part_checksum(one.info, one.shard.dim, one.shard.begin, one.shard.end,
                                                  part.host.data() + one.part));
      }
      const gpu::OwnedStream stream;
      gpu::Copies cutting(cut, sums), putting(put, sums);
      for (int again = 0; again < 2; ++again) {
        cutting.run(stream.get());
        putting.run(stream.get());
        if (sums) CHECK(cutting.sums(stream.get()) == expected);
        if (sums) CHECK(putting.sums(stream.get()) == expected);
      }
      stream.synchronize();
      CHECK(part.download() == part.host);
      CHECK(back.download() == back.host);
      CHECK(whole.download() == whole.host);
    }
  }
}

TEST_CASE("sums alone are those of the CPU") {
  gpu::select_device(gpu::device_uuid(0));
  const Twin memory(1 << 20, 5);
  const tensor::TensorInfo info{"t", DType::bf16, {1000, 77}};
  const arch::Shard shard{1, 10, 77, 0, {1000, 67}};
  const gpu::OwnedStream stream;
  gpu::Copies sums({channels::sum_of_part(memory.device.data() + 2, info, shard)}, true);
  sums.run(stream.get());
  CHECK(sums.sums(stream.get()) ==
        std::vector<uint64_t>{weights::part_checksum(info, 1, 10, 77, memory.host.data() + 2)});
}

TEST_CASE("float32 becomes bfloat16 by rounding to the nearest even, and back exactly") {
  gpu::select_device(gpu::device_uuid(0));
  for (const uint64_t offset : {0, 4}) {  // vectors, and element by element
    constexpr uint64_t kCount = 100003;
    Twin wide(kCount * 4 + 64, 7), narrow(kCount * 2 + 64, 8), again(kCount * 4 + 64, 9);
    std::vector<uint16_t> expected(kCount);
    std::vector<uint32_t> bits(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      bits[i] = static_cast<uint32_t>(mix_key(11, i));
      if (i % 3 == 0) bits[i] = (bits[i] & 0xffff0000u) | 0x8000u;  // half-way
      const float value = as_float(bits[i]);
      if (std::isnan(value)) {
        expected[i] = 0x7fc0;
      } else {
        expected[i] = static_cast<uint16_t>((bits[i] + 0x7fff + ((bits[i] >> 16) & 1)) >> 16);
      }
    }
    std::memcpy(wide.host.data() + offset, bits.data(), kCount * 4);
    wide.upload();
    const tensor::TensorInfo own{"t", DType::bf16, {static_cast<int64_t>(kCount)}};
    const arch::Shard all{0, 0, static_cast<int64_t>(kCount), 0, own.shape};
    const gpu::OwnedStream stream;
    gpu::Copies down({channels::copy_of_overlap(wide.device.data() + offset, DType::f32, all, own, all,
                                                narrow.device.data() + offset / 2)},
                     true);
    down.run(stream.get());
    CHECK(down.sums(stream.get()) ==
          std::vector<uint64_t>{weights::full_checksum({own, reinterpret_cast<const std::byte*>(expected.data())})});
    const std::vector<std::byte> got = narrow.download();
    CHECK(std::memcmp(got.data() + offset / 2, expected.data(), kCount * 2) == 0);
    const tensor::TensorInfo float_own{"t", DType::f32, own.shape};
    gpu::Copies up({channels::copy_of_overlap(narrow.device.data() + offset / 2, DType::bf16, all, float_own, all,
                                              again.device.data() + offset)});
    up.run(stream.get());
    stream.synchronize();
    const std::vector<std::byte> floats = again.download();
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < kCount; ++i) {
      uint32_t value = 0;
      std::memcpy(&value, floats.data() + offset + 4 * i, 4);
      wrong += value == static_cast<uint32_t>(expected[i]) << 16 ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}
