// What vLLM servers are sent in a push, release by release, and what vime's own engines are sent in the same place.
#include "weights/vllm_protocol.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/error.hpp"

using namespace vime;
using namespace vime::weights;
using tensor::DType;

namespace {

const std::string kUuidA = "8f0c8d35-1c2e-4b5a-9d3e-000000000001", kUuidB = "8f0c8d35-1c2e-4b5a-9d3e-000000000002";

Bucket dense_bucket() {
  Bucket bucket;
  bucket.entries = {{{"a", DType::bf16, {4, 2}}, 0}, {{"b", DType::bf16, {3}}, 16}};
  bucket.bytes = 22;
  return bucket;
}

std::map<std::string, SharedPlace> two_places() {
  const std::string first(128, '1'), second(128, '2');
  return {{kUuidA, {"cuda:4096:77:" + first, 256, 22}}, {kUuidB, {"cuda:4096:78:" + second, 512, 22}}};
}

std::string pickle_of(const Json& update_info) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int have = 0;
  for (const char c : update_info.at("ipc_handles_pickled").get<std::string>()) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(letters.find(c));
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes += static_cast<char>(bits >> have & 0xff);
  }
  return bytes;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

using Keys = std::vector<std::string>;

}  // namespace

TEST_CASE("memory that stays is named tensor by tensor, a staging as one packed buffer, both for every worker") {
  const auto protocol = protocol_named("vllm 0.25.1");
  const Json apart = protocol->slot_update_info(dense_bucket(), two_places(), Lifetime::push, nullptr);
  CHECK(keys_of(apart) == Keys{"dtype_names", "ipc_handles_pickled", "names", "packed", "shapes"});
  CHECK(apart["packed"] == false);
  CHECK(apart["names"] == Json{"a", "b"});
  CHECK(apart["dtype_names"] == Json{"bfloat16", "bfloat16"});
  const std::string tensors = pickle_of(apart);
  for (const std::string& uuid : {kUuidA, kUuidB}) CHECK(count(tensors, uuid) == 2);
  CHECK(count(tensors, std::string(64, '\x11')) == 2);
  CHECK(count(tensors, std::string(64, '\x22')) == 2);

  const Json packed = protocol->slot_update_info(dense_bucket(), two_places(), Lifetime::bucket, nullptr);
  CHECK(keys_of(packed) == Keys{"dtype_names", "ipc_handles_pickled", "names", "packed", "shapes", "tensor_sizes"});
  CHECK(packed["packed"] == true);
  CHECK(packed["tensor_sizes"] == Json{16, 6});
  for (const std::string& uuid : {kUuidA, kUuidB}) CHECK(count(pickle_of(packed), uuid) == 1);
}

TEST_CASE("a packed buffer with bytes between its tensors is a bug here, not wrong weights there") {
  Bucket bucket = dense_bucket();
  bucket.entries[1].offset = 32;
  const auto protocol = protocol_named("vllm 0.25.1", 1 << 20);
  CHECK_THROWS_AS(protocol->slot_update_info(bucket, two_places(), Lifetime::bucket, nullptr), Error);
  CHECK_NOTHROW(protocol->slot_update_info(bucket, two_places(), Lifetime::push, nullptr));
  SentManifests sent;
  CHECK_THROWS_AS(protocol->network_update_info({&bucket, 1}, sent), Error);
}

TEST_CASE("what differs between releases: the start's body, the version, and where packed belongs") {
  struct Expected {
    const char* name;
    bool start_body, version, packed_in_init;
  };
  for (const Expected& expected :
       {Expected{"vllm 0.24.0", true, false, false}, Expected{"vllm 0.25.1", false, false, false},
        Expected{"vllm 0.32.0", false, true, true}, Expected{"embedded", true, true, false}}) {
    CAPTURE(expected.name);
    const auto protocol = protocol_named(expected.name, 1 << 20);
    CHECK(protocol->start_body().is_null() != expected.start_body);
    CHECK(protocol->finish_body(7).is_null() != expected.version);
    CHECK(protocol->tells_version() == expected.version);
    CHECK(protocol->slot_init_info("ipc", Lifetime::bucket).contains("packed") == expected.packed_in_init);
    CHECK(protocol_named(protocol->name())->name() == protocol->name());
  }
  CHECK(protocol_named("vllm 0.32.0")->finish_body(7) == Json{{"weight_version", "7"}});
}

TEST_CASE("over the network one request names all buckets, with the size that they were cut by") {
  std::vector<Bucket> buckets =
      vllm_buckets({{"a", DType::bf16, {8}}, {"b", DType::bf16, {8}}, {"c", DType::bf16, {8}}}, 20);
  REQUIRE(buckets.size() == 2);
  CHECK(buckets[0].bytes == 32);  // the second tensor brought it above 20
  CHECK(buckets[0].entries[1].offset == 16);
  CHECK(buckets[1].entries[0].info.name == "c");
  SentManifests sent;
  const Json older = protocol_named("vllm 0.25.1", 20)->network_update_info(buckets, sent);
  CHECK(older["names"] == Json{"a", "b", "c"});
  CHECK(older["packed"] == true);
  CHECK(older["packed_buffer_size_bytes"] == 20);
  const Json newest = protocol_named("vllm 0.32.0", 20)->network_update_info(buckets, sent);
  CHECK(keys_of(newest) == Keys{"dtype_names", "names", "shapes"});

  const Json source = {{"master_address", "127.0.0.1"}, {"master_port", 4711}};
  const Json init = protocol_named("vllm 0.32.0", 20)->network_init_info(source, 3, 5);
  CHECK(init["rank_offset"] == 3);
  CHECK(init["world_size"] == 5);
  CHECK(init["master_port"] == 4711);
  CHECK(init["packed_buffer_size_bytes"] == 20);
  CHECK_FALSE(protocol_named("vllm 0.25.1", 20)->network_init_info(source, 3, 5).contains("packed"));
}

TEST_CASE("a secret goes where the kind of engine looks for it") {
  CHECK(protocol_named("vllm 0.25.1")->secret_header("s") ==
        std::pair<std::string, std::string>("Authorization", "Bearer s"));
  CHECK(protocol_named("")->secret_header("s") == std::pair<std::string, std::string>("x-vime-token", "s"));
}

TEST_CASE("kinds of engines that vime does not drive are refused") {
  CHECK_THROWS_AS(protocol_named("vllm 0.20.2"), Error);
  CHECK_THROWS_AS(protocol_named("vllm"), Error);
  CHECK_THROWS_AS(protocol_named("sglang 0.5"), Error);
  const auto early = protocol_named("vllm 0.21.0");
  CHECK_THROWS_AS(early->slot_init_info("ipc", Lifetime::bucket), Error);
  CHECK_NOTHROW(early->slot_init_info("ipc", Lifetime::push));
}
