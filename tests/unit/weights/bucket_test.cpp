#include "weights/bucket.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <span>

#include "base/error.hpp"
#include "base/random.hpp"

using namespace vime;
using namespace vime::weights;
using tensor::DType;
using tensor::TensorInfo;

TEST_CASE("a bucket is closed before it would exceed the buffer") {
  const std::vector<TensorInfo> tensors = {{"a", DType::u8, {60}}, {"b", DType::u8, {40}}, {"c", DType::u8, {1}}};
  const auto buckets = pack_buckets(tensors, 100);
  REQUIRE(buckets.size() == 2);
  CHECK(buckets[0].bytes == 100);
  CHECK(buckets[1].entries[0].info.name == "c");
  CHECK(pack_buckets(tensors, 99).size() == 2);
  CHECK(pack_buckets(tensors, 99)[0].entries.size() == 1);
}

TEST_CASE("a tensor larger than the buffer is a bucket of its own") {
  const auto buckets = pack_buckets({{"a", DType::u8, {5}}, {"big", DType::u8, {500}}, {"z", DType::u8, {5}}}, 100);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[1].entries.size() == 1);
  CHECK(buckets[1].bytes == 500);
}

TEST_CASE("no tensors make no bucket, an empty tensor still arrives") {
  CHECK(pack_buckets({}, 100).empty());
  const auto buckets = pack_buckets({{"none", DType::f32, {0, 4}}}, 100);
  REQUIRE(buckets.size() == 1);
  CHECK(buckets[0].bytes == 0);
}

TEST_CASE("random lists: every name once and in order, offsets aligned, no overlap, no needless bucket") {
  const DType dtypes[] = {DType::u8, DType::bf16, DType::f32, DType::f64};
  for (uint64_t trial = 0; trial < 300; ++trial) {
    std::vector<TensorInfo> tensors;
    const auto count = static_cast<int>(mix_key(trial, 1) % 20);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = mix_key(trial, 2, static_cast<uint64_t>(i));
      tensors.push_back({"t" + std::to_string(i), dtypes[key % 4], {static_cast<int64_t>(mix64(key) % 7)}});
    }
    const uint64_t limit = 1 + mix_key(trial, 3) % 60;
    const auto buckets = pack_buckets(tensors, limit);
    size_t next = 0;
    for (const Bucket& bucket : buckets) {
      REQUIRE_FALSE(bucket.entries.empty());
      uint64_t end = 0;
      for (const BucketEntry& entry : bucket.entries) {
        CHECK(entry.info == tensors.at(next++));
        CHECK(entry.offset % tensor::element_bytes(entry.info.dtype) == 0);
        CHECK(entry.offset >= end);
        end = entry.offset + entry.info.bytes();
      }
      CHECK(bucket.bytes == end);
      if (bucket.entries.size() > 1) CHECK(bucket.bytes <= limit);
    }
    CHECK(next == tensors.size());
  }
}

TEST_CASE("a bucket is packed from tensors that lie scattered, gaps left alone") {
  const std::vector<TensorInfo> infos = {{"a", DType::u8, {3}}, {"none", DType::f32, {0}}, {"b", DType::f32, {2}}};
  const auto buckets = pack_buckets(infos, 100);
  REQUIRE(buckets.size() == 1);
  const std::array<uint8_t, 3> a = {1, 2, 3};
  const std::array<float, 2> b = {4, 5};
  const std::vector<tensor::TensorView> views = {{infos[0], reinterpret_cast<const std::byte*>(a.data())},
                                                 {infos[1], nullptr},
                                                 {infos[2], reinterpret_cast<const std::byte*>(b.data())}};
  std::array<std::byte, 12> into;
  into.fill(std::byte{9});
  std::span<const tensor::TensorView> left = views;
  pack_bucket(buckets[0], left, into.data());
  CHECK(left.empty());
  CHECK(std::memcmp(into.data(), a.data(), 3) == 0);
  CHECK(into[3] == std::byte{9});
  CHECK(std::memcmp(into.data() + 4, b.data(), 8) == 0);
  left = std::span(views).first(2);
  CHECK_THROWS_AS(pack_bucket(buckets[0], left, into.data()), Error);
  left = std::span(views).subspan(1);
  CHECK_THROWS_AS(pack_bucket(buckets[0], left, into.data()), Error);
}

TEST_CASE("a manifest reads back") {
  const auto bucket = pack_buckets({{"a", DType::bf16, {3, 2}}, {"b", DType::f32, {}}}, 1000)[0];
  const Bucket back = parse_manifest(manifest_json(bucket));
  CHECK(back.bytes == bucket.bytes);
  REQUIRE(back.entries.size() == 2);
  CHECK(back.entries[0].info == bucket.entries[0].info);
  CHECK(back.entries[1].offset == bucket.entries[1].offset);
}

TEST_CASE("a manifest whose lists do not fit together is refused with the reason") {
  const Json good = manifest_json(pack_buckets({{"a", DType::f32, {2}}, {"b", DType::f32, {2}}}, 1000)[0]);
  const auto refused = [](const Json& manifest, const std::string& reason) {
    try {
      parse_manifest(manifest);
      return false;
    } catch (const Error& error) {
      CAPTURE(error.message());
      return error.message().find(reason) != std::string::npos;
    }
  };
  Json bad = good;
  bad.erase("shapes");
  CHECK(refused(bad, "\"shapes\" is missing"));
  bad = good;
  bad["dtype_names"].erase(0);
  CHECK(refused(bad, "2 names but 1 dtype_names"));
  bad = good;
  bad["dtype_names"][0] = "float31";
  CHECK(refused(bad, "float31"));
  bad = good;
  bad["tensor_offsets"][1] = 9;
  CHECK(refused(bad, "no multiple"));
  bad = good;
  bad["names"][0] = 5;
  CHECK(refused(bad, "entry 0"));
}

TEST_CASE("chunks of an arena are stretches of it, cut before they would grow too long") {
  const std::vector<PlacedTensor> tensors = {{{"a", DType::f32, {5}}, 64},
                                             {{"b", DType::f32, {3}}, 128},
                                             {{"c", DType::f32, {40}}, 192},
                                             {{"d", DType::f32, {1}}, 384}};
  const std::vector<ArenaChunk> chunks = arena_chunks(tensors, 100);
  REQUIRE(chunks.size() == 3);
  CHECK(chunks[0].begin == 64);
  CHECK(chunks[0].bucket.entries[1].offset == 64);
  CHECK(chunks[0].bucket.bytes == 76);
  CHECK(chunks[1].begin == 192);
  CHECK(chunks[1].bucket.bytes == 160);
  CHECK(chunks[2].begin == 384);
}

TEST_CASE("the last chunks of an arena become shorter, down to a sixteenth, and nothing is lost") {
  std::vector<PlacedTensor> tensors;
  for (uint64_t i = 0; i < 1000; ++i) tensors.push_back({{"t" + std::to_string(i), DType::u8, {10}}, 10 * i});
  const std::vector<ArenaChunk> chunks = arena_chunks(tensors, 1600);
  uint64_t end = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    CHECK(chunks[i].begin == end);
    const uint64_t left = 10000 - end;
    CHECK(chunks[i].bucket.bytes <= 1600);
    CHECK(chunks[i].bucket.bytes <= std::max<uint64_t>(left / 2, 100));
    end += chunks[i].bucket.bytes;
  }
  CHECK(end == 10000);
  CHECK(chunks.front().bucket.bytes == 1600);
  CHECK(chunks.back().bucket.bytes <= 100);
  CHECK(chunks.size() < 14);
}

TEST_CASE("packing with an alignment puts every tensor at a multiple of it") {
  const auto buckets =
      pack_buckets({{"a", DType::bf16, {3}}, {"b", DType::bf16, {5}}, {"c", DType::f32, {1}}}, 1000, 16);
  REQUIRE(buckets.size() == 1);
  CHECK(buckets[0].entries[1].offset == 16);
  CHECK(buckets[0].entries[2].offset == 32);
  CHECK(buckets[0].bytes == 36);
}
