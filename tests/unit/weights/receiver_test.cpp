#include "weights/receiver.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "base/error.hpp"
#include "weights/bucket.hpp"
#include "weights/shared_arena.hpp"
#include "weights/tcp_channel.hpp"

using namespace vime;
using namespace vime::weights;
using tensor::DType;

namespace {

const std::chrono::milliseconds kTimeout{5000};
const char* const kUuid = "00000000-0000-0000-0000-000000000001";
const char* const kOther = "00000000-0000-0000-0000-000000000002";

const Bucket kPair{{{{"a", DType::f32, {2}}, 0}, {{"b", DType::f32, {2}}, 64}}, 72, ""};

// An arena with two float tensors, and the update that names it.
struct Update {
  SharedArena arena{256};
  Json info = manifest_json(kPair);

  explicit Update(const char* uuid) {
    const float values[] = {1, 2, 3, 4};
    std::memcpy(arena.data(), values, 8);
    std::memcpy(arena.data() + 64, values + 2, 8);
    info["handles"] = {{uuid, {{"handle", arena.handle()}, {"offset", 0}, {"bytes", 256}}}};
  }
};

std::vector<float> values_of(const BucketEntry& entry, const std::byte* base) {
  std::vector<float> values(static_cast<size_t>(tensor::element_count(entry.info.shape)));
  std::memcpy(values.data(), base + entry.offset, entry.info.bytes());
  return values;
}

void take_nothing(const Bucket&, const std::byte*) {}
void no_shards(const Bucket&, const ReplicaMemory&) {
  FAIL("no shards were sent");
}

}  // namespace

TEST_CASE("tensors come from the own device's handle, in manifest order, foreign entries ignored") {
  Update update(kUuid);
  update.info["handles"][kOther] = {{"handle", "memfd:1:1:garbage"}, {"offset", 0}, {"bytes", 256}};
  Receiver receiver(0, kUuid, kTimeout);
  receiver.init({{"backend", "shm"}});
  std::vector<std::pair<std::string, std::vector<float>>> got;
  receiver.receive(
      update.info,
      [&](const Bucket& bucket, const std::byte* base) {
        for (const BucketEntry& entry : bucket.entries) got.emplace_back(entry.info.name, values_of(entry, base));
      },
      no_shards);
  REQUIRE(got.size() == 2);
  CHECK(got[0] == std::pair<std::string, std::vector<float>>{"a", {1, 2}});
  CHECK(got[1] == std::pair<std::string, std::vector<float>>{"b", {3, 4}});
}

TEST_CASE("a missing handle names the worker's UUID and those that came") {
  const Update update(kOther);
  Receiver receiver(1, kUuid, kTimeout);
  receiver.init({{"backend", "shm"}});
  CHECK_THROWS_WITH_AS(receiver.receive(update.info, take_nothing, no_shards),
                       doctest::Contains(("not found for device UUID " + std::string(kUuid)).c_str()), Error);
}

TEST_CASE("tensors that leave the handle or the shared memory are refused") {
  Update update(kUuid);
  Receiver receiver(0, kUuid, kTimeout);
  receiver.init({{"backend", "shm"}});
  const auto refused = [&] {
    try {
      receiver.receive(update.info, take_nothing, no_shards);
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::refused;
    }
  };
  CHECK_FALSE(refused());
  update.info["handles"][kUuid]["bytes"] = 71;
  CHECK(refused());
  update.info["handles"][kUuid]["bytes"] = 257;
  CHECK(refused());
  update.info["handles"][kUuid]["bytes"] = 256;
  update.info["handles"][kUuid]["offset"] = 4;
  CHECK(refused());
}

TEST_CASE("an update before init and an unknown backend are refused") {
  const Update update(kUuid);
  Receiver receiver(0, kUuid, kTimeout);
  CHECK_THROWS_WITH_AS(receiver.receive(update.info, take_nothing, no_shards), doctest::Contains("not initialized"),
                       Error);
  CHECK_THROWS_WITH_AS(receiver.init({{"backend", "pigeon"}}), doctest::Contains("pigeon"), Error);
}

TEST_CASE("over the network the bytes of the announced update arrive") {
  TcpSource source("127.0.0.1", "t", 3);
  Receiver receiver(1, kUuid, kTimeout);
  const Json init = {{"backend", "tcp"},
                     {"master_address", "127.0.0.1"},
                     {"master_port", source.port()},
                     {"rank_offset", 1},
                     {"world_size", 3},
                     {"token", "t"}};
  receiver.init(init);
  CHECK(source.connected() == std::vector<int>{2});
  const Bucket bucket = pack_buckets({{"a", DType::f32, {3}}}, 100)[0];
  const float values[] = {5, 6, 7};
  CHECK(source.send({2}, reinterpret_cast<const std::byte*>(values), 12, kTimeout, [](int) { return false; }).empty());
  std::vector<float> got;
  receiver.receive(
      manifest_json(bucket),
      [&](const Bucket& whole, const std::byte* base) { got = values_of(whole.entries.at(0), base); }, no_shards);
  CHECK(got == std::vector<float>{5, 6, 7});
  Json outside = init;
  outside["rank_offset"] = 2;
  CHECK_THROWS_WITH_AS(receiver.init(outside), doctest::Contains("world_size 3"), Error);
}

TEST_CASE("a manifest is sent once; afterwards its key stands for it, until the next init") {
  const SharedArena arena(256);
  const Bucket& bucket = kPair;
  const Json handles = {{kUuid, {{"handle", arena.handle()}, {"offset", 0}, {"bytes", 256}}}};
  SentManifests sent;
  Receiver receiver(0, kUuid, kTimeout);
  receiver.init({{"backend", "shm"}});
  std::string key;
  for (int push = 0; push < 3; ++push) {
    CAPTURE(push);
    Json info = sent.update_info({&bucket, 1});
    CHECK(info.contains("names") == (push == 0));
    info["handles"] = handles;
    const TakeBucket take = [&](const Bucket& got, const std::byte*) {
      CHECK(got.key != "");
      if (push == 0) key = got.key;
      CHECK(got.key == key);
      CHECK(got.entries.size() == 2);
    };
    receiver.receive(info, take, no_shards);
    sent.arrived();
  }
  receiver.init({{"backend", "shm"}});
  Json info = sent.update_info({&bucket, 1});
  info["handles"] = handles;
  CHECK_THROWS_WITH_AS(receiver.receive(info, take_nothing, no_shards), doctest::Contains("never sent"), Error);
  sent.forget();
  info = sent.update_info({&bucket, 1});
  info["handles"] = handles;
  info["tensor_offsets"][1] = 68;
  CHECK_THROWS_WITH_AS(receiver.receive(info, take_nothing, no_shards), doctest::Contains("other tensors than its key"),
                       Error);
}

TEST_CASE("chunks cut a manifest into messages and are refused where they do not fit it") {
  const std::vector<Bucket> buckets =
      pack_buckets({{"a", DType::f32, {4}}, {"b", DType::f32, {4}}, {"c", DType::f32, {1}}}, 20);
  REQUIRE(buckets.size() == 2);
  SentManifests sent;
  KeptManifests kept;
  const Json info = sent.update_info(buckets);
  const std::vector<Bucket>& got = kept.buckets(info);
  REQUIRE(got.size() == 2);
  CHECK(got[0].bytes == 16);
  CHECK(got[1].entries[1].offset == 16);
  CHECK(manifest_key(got) == manifest_key(buckets));
  for (const Json& wrong : {parse_json("[[1, 16]]"), parse_json("[[1, 16], [3, 20]]"), parse_json("[[1, 8], [2, 20]]"),
                            parse_json("[3]")}) {
    Json bad = info;
    bad["chunks"] = wrong;
    CHECK_THROWS_AS(kept.buckets(bad), Error);
  }
}

TEST_CASE("the shards of all ranks of a replica are opened, by stage and tensor-parallel rank") {
  const SharedArena first(64), second(128);
  first.data()[0] = std::byte{7};
  second.data()[32] = std::byte{9};
  const ReplicaPlaces places{{{{first.handle(), 0, 64}}, {{second.handle(), 32, 96}}}, {1, 0}};
  Json info = manifest_json(kPair);  // its offsets are of no meaning, so they are behind no end
  info["handles"] = {{kUuid, to_json(places)}, {kOther, {{"shards", "garbage"}}}};
  Receiver receiver(0, kUuid, kTimeout);
  receiver.init({{"backend", "shm"}});
  int taken = 0;
  const TakeShards take = [&](const Bucket& bucket, const ReplicaMemory& replica) {
    ++taken;
    CHECK(bucket.entries.size() == 2);
    REQUIRE(replica.ranks.size() == 2);
    REQUIRE(replica.ranks[1].size() == 1);
    CHECK(replica.ranks[0][0].bytes == 64);
    CHECK(replica.ranks[0][0].data[0] == std::byte{7});
    CHECK(replica.ranks[1][0].bytes == 96);
    CHECK(replica.ranks[1][0].data[0] == std::byte{9});
    CHECK(replica.nearest == RankPlace{1, 0});
  };
  receiver.receive(info, take_nothing, take);
  CHECK(taken == 1);

  const auto refused = [&](const char* text, const auto& change) {
    Json wrong = info;
    change(wrong["handles"][kUuid]);
    CHECK_THROWS_WITH_AS(receiver.receive(wrong, take_nothing, take), doctest::Contains(text), Error);
  };
  refused("list of stages", [](Json& own) { own["shards"] = Json::array(); });
  refused("same ranks on every stage", [](Json& own) { own["shards"][1].push_back(own["shards"][0][0]); });
  refused("\"nearest\" must be", [](Json& own) { own["nearest"] = {2, 0}; });
  refused("\"nearest\" must be", [](Json& own) { own["nearest"] = {0, -1}; });
  refused("at offset 33", [](Json& own) { own["shards"][1][0]["offset"] = 33; });
  refused("\"bytes\" is -1", [](Json& own) { own["shards"][0][0]["bytes"] = -1; });
  CHECK(taken == 1);
}
