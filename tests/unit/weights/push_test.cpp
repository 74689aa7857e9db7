// Whole pushes into real engine fronts, and the wrong rules that pushes must not follow (planted.*).
#include <doctest/doctest.h>

#include <future>
#include <span>

#include "base/deadline.hpp"
#include "http/server.hpp"
#include "slot_ranks.hpp"
#include "stored_engine.hpp"
#include "weights/network_push.hpp"
#include "weights/version.hpp"

using namespace vime;
using namespace vime::weights;

namespace {

// One rank's push of tensors that stay where they are.
std::optional<EngineResult> push_arena(SlotPush push, const RankWeights& weights) {
  push.start();
  for (const ArenaChunk& chunk : arena_chunks(weights.tensors, kBufferBytes))
    push.send(chunk.bucket, {weights.arena.handle(), chunk.begin, chunk.bucket.bytes});
  return push.finish();
}

// Every rank of a slot of two pushes; the leader's error, "" when all went well.
std::string push_both(StoredEngine& engine, const RankWeights& weights, int64_t version) {
  ThreadSlot threads(2);
  ThreadSlot::Member first(threads, 0), second(threads, 1);
  const placement::Slot slot{0, 0, 2};
  auto follower = std::async(std::launch::async, [&] {
    return push_arena(make_push(slot, 1, second, nullptr, version, Lifetime::push), weights);
  });
  const auto led = push_arena(make_push(slot, 0, first, engine.client.get(), version, Lifetime::push), weights);
  CHECK_FALSE(follower.get().has_value());
  CHECK(first.gathers == second.gathers);
  CHECK(first.gathers == 3);
  CHECK(first.barriers == 0);  // nothing is overwritten, so nobody waits
  REQUIRE(led.has_value());
  return led->error;
}

// The network source's push of tensors that lie scattered.
std::vector<EngineResult> push_network(NetworkPush& push, const std::vector<NetworkTarget>& targets,
                                       const RankWeights& weights, int64_t version) {
  std::vector<std::byte> staging(64);
  const std::vector<tensor::TensorView> views = weights.views();
  std::span<const tensor::TensorView> left = views;
  push.start(targets, version);
  for (const Bucket& bucket : pack_buckets(weights.infos(), kBufferBytes)) {
    pack_bucket(bucket, left, staging.data());
    push.send(bucket, staging.data());
  }
  return push.finish();
}

}  // namespace

TEST_CASE("a colocated push puts the trainer's bytes and the version on the engine, again and again") {
  StoredEngine engine(0, {uuid_of(0), uuid_of(1)});
  for (int64_t version = 1; version <= 3; ++version) {
    const RankWeights weights(static_cast<uint64_t>(version));
    engine.client->pause("abort", true);
    CHECK(push_both(engine, weights, version) == "");
    CHECK(version_problems(version, {engine.client->weight_version()}).empty());
    CHECK(checksum_problems(weights.checksums(), {{"engine 0", engine.client->checksums()}}).empty());
    engine.client->resume();
  }
}

TEST_CASE("colocated and network pushes of the same weights give equal engines") {
  const RankWeights weights(9);
  StoredEngine colocated(0, {uuid_of(0), uuid_of(1)}), remote(1, {uuid_of(2), uuid_of(3)}), single(2, {uuid_of(4)});
  CHECK(push_both(colocated, weights, 1) == "");
  NetworkPush network("127.0.0.1", "token", milliseconds(10000));
  for (const int64_t version : {1, 2}) {
    const bool init = version == 1;
    const auto results =
        push_network(network, {{remote.client.get(), 2, init}, {single.client.get(), 1, init}}, weights, version);
    for (const EngineResult& result : results) CHECK(result.error == "");
    CHECK(version_problems(version, {remote.client->weight_version(), single.client->weight_version()}).empty());
  }
  CHECK(remote.client->checksums() == colocated.client->checksums());
  CHECK(single.client->checksums() == colocated.client->checksums());
}

TEST_CASE("a failed update keeps every rank in the gathers, sends no finish and leaves the old version") {
  StoredEngine engine(0, {uuid_of(0), uuid_of(1)});
  CHECK(push_both(engine, RankWeights(1), 1) == "");
  engine.executor.failing_update = 5;                              // the second of three in the second push
  const std::string error = push_both(engine, RankWeights(2), 2);  // checks the number of gathers of both ranks
  CHECK(error.find("planted failure of update 5") != std::string::npos);
  CHECK(engine.executor.finishes == 1);
  CHECK(engine.client->weight_version().text == "1");
}

TEST_CASE("over the network an engine that refuses, dies or hangs costs only itself, within the deadline") {
  const RankWeights weights(3);
  for (const char* fault : {"refuses", "dies", "hangs"}) {
    CAPTURE(fault);
    StoredEngine good(0, {uuid_of(0)});
    auto bad = std::make_unique<StoredEngine>(1, std::vector<std::string>{uuid_of(1), uuid_of(2)}, milliseconds(500));
    NetworkPush network("127.0.0.1", "token", milliseconds(2000));
    const std::vector<NetworkTarget> first = {{good.client.get(), 1, true}, {bad->client.get(), 2, true}};
    for (const EngineResult& result : push_network(network, first, weights, 1)) CHECK(result.error == "");
    http::Server silent({});
    silent.route("POST", "/start_weight_update", [](const http::ServerRequest&, http::Responder responder) {
      responder.respond({200, "{}"});
    });
    std::vector<http::Responder> unanswered;
    silent.route("POST", "/update_weights",
                 [&](const http::ServerRequest&, http::Responder responder) { unanswered.push_back(responder); });
    silent.start();
    EngineClient hung(good.http, {1, "http://127.0.0.1:" + std::to_string(silent.port()), ""}, milliseconds(1000));
    EngineClient* target = bad->client.get();
    if (std::string(fault) == "refuses") bad->executor.failing_update = 5;
    if (std::string(fault) == "dies") bad->server.stop();
    if (std::string(fault) == "hangs") target = &hung;
    const auto results = push_network(network, {{good.client.get(), 1, false}, {target, 2, false}}, weights, 2);
    REQUIRE(results.size() == 2);
    CHECK(results[0].error == "");
    CHECK(results[1].error.find("engine 1") != std::string::npos);
    CHECK(good.client->weight_version().text == "2");
    silent.stop();
  }
}

TEST_CASE("a push without buckets and a bucket without tensors are legal on both ways") {
  StoredEngine slot_engine(0, {uuid_of(0)}), network_engine(1, {uuid_of(1)});
  ThreadSlot alone(1);
  ThreadSlot::Member group(alone, 0);
  NetworkPush network("127.0.0.1", "token", milliseconds(10000));
  const SharedArena arena(64);
  const std::vector<std::vector<Bucket>> pushes = {{}, {Bucket{}}};
  int64_t version = 0;
  for (const std::vector<Bucket>& buckets : pushes) {
    SlotPush push = make_push({0, 0, 1}, 0, group, slot_engine.client.get(), ++version);
    push.start();
    network.start({{network_engine.client.get(), 1, version == 1}}, version);
    for (const Bucket& bucket : buckets) {
      push.send(bucket, {arena.handle(), 0, 0});
      network.send(bucket, nullptr);
    }
    const auto result = push.finish();
    REQUIRE(result.has_value());
    CHECK(result->error == "");
    CHECK(network.finish().at(0).error == "");
    CHECK(version_problems(version, {slot_engine.client->weight_version(), network_engine.client->weight_version()})
              .empty());
  }
  NetworkPush nobody("127.0.0.1", "token", milliseconds(10000));
  nobody.start({}, 1);
  nobody.send(Bucket{}, nullptr);
  CHECK(nobody.finish().empty());
}

TEST_CASE("planted.a leader chosen by the trainer's TP rank starts one engine twice") {
  StoredEngine engine(0, {uuid_of(0), uuid_of(1)});
  const RankWeights weights(1);
  engine.client->init_weight_transfer({{"backend", "shm"}});
  // With trainer TP=1 every rank has TP rank 0, so under the wrong rule both ranks of the slot lead.
  PushSession first(*engine.client, 1), second(*engine.client, 1);
  first.start();
  second.start();
  CHECK_FALSE(first.failed());
  CHECK(second.error().find("already active") != std::string::npos);
  // By rank == start exactly one rank of each slot leads, whatever the trainer's TP is.
  const placement::Slot slot{0, 0, 2};
  CHECK(slot.leader() == 0);
  StoredEngine fresh(0, {uuid_of(0), uuid_of(1)});
  CHECK(push_both(fresh, weights, 1) == "");
}

TEST_CASE("planted.handles gathered over the trainer's TP group lack the second worker's device") {
  StoredEngine engine(0, {uuid_of(0), uuid_of(1)});
  const RankWeights weights(1);
  ThreadSlot alone(1);
  ThreadSlot::Member group(alone, 0);
  // The trainer's TP group of rank 0 is rank 0 alone, while the engine has two workers.
  const auto wrong = push_arena(make_push({0, 0, 1}, 0, group, engine.client.get(), 1, Lifetime::push), weights);
  REQUIRE(wrong.has_value());
  CHECK(wrong->error.find("not found for device UUID " + uuid_of(1)) != std::string::npos);
  CHECK(engine.client->weight_version().text == "default");
}

TEST_CASE("planted.a leader that misses a peer's handle refuses instead of posting") {
  StoredEngine engine(0, {uuid_of(0), uuid_of(1)});
  const RankWeights weights(1);
  ThreadSlot alone(1);
  ThreadSlot::Member group(alone, 0);
  const auto wrong = push_arena(make_push({0, 0, 2}, 0, group, engine.client.get(), 1, Lifetime::push), weights);
  REQUIRE(wrong.has_value());
  CHECK(wrong->error.find("handles of 1 ranks, expected 2") != std::string::npos);
}

TEST_CASE("planted.a version recorded before the request names contents that never arrived") {
  StoredEngine engine(0, {uuid_of(0), uuid_of(1)});
  const RankWeights old_weights(1), new_weights(2);
  CHECK(push_both(engine, old_weights, 1) == "");
  // The wrong rule: the version first, then the transfer, which fails.
  engine.http.call(
      engine.client->request("POST", "/update_weight_version", {{"new_version", "2"}}, milliseconds(5000)));
  engine.executor.failing_update = 4;
  CHECK(push_both(engine, new_weights, 2) != "");
  CHECK(version_problems(2, {engine.client->weight_version()}).empty());  // the version check alone is fooled
  CHECK_THROWS_WITH_AS(engine.client->checksums(), doctest::Contains("incomplete"),
                       Error);  // what it names is not there
  // The right rule: finish records it, and only after success.
  StoredEngine right(0, {uuid_of(0), uuid_of(1)});
  CHECK(push_both(right, old_weights, 1) == "");
  right.executor.failing_update = 4;
  CHECK(push_both(right, new_weights, 2) != "");
  CHECK(version_problems(2, {right.client->weight_version()}).size() == 1);
}

TEST_CASE("planted.a push that never sets the version is found by the version check") {
  StoredEngine engine(0, {uuid_of(0)});
  engine.client->start_weight_update();
  engine.http.call(engine.client->request("POST", "/finish_weight_update", Json::object(), milliseconds(5000)));
  const auto problems = version_problems(1, {engine.client->weight_version()});
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].find("expected 1, engine says default") != std::string::npos);
}

TEST_CASE("planted.a version read from /v1/models is a path and is refused as one") {
  StoredEngine engine(0, {uuid_of(0)});
  const http::Reply reply = engine.http.call(engine.client->request("GET", "/v1/models", nullptr, milliseconds(5000)));
  const std::string id = parse_json(reply.body, "/v1/models").at("data").at(0).at("id").get<std::string>();
  CHECK_THROWS_AS(parse_version(id, "engine 0"), Error);
  CHECK(version_problems(1, {{"engine 0", true, id}}).size() == 1);
}

TEST_CASE("planted.a finish after a failed transfer does not give the engine the version") {
  StoredEngine engine(0, {uuid_of(0)});
  engine.client->init_weight_transfer({{"backend", "shm"}});
  engine.client->start_weight_update();
  CHECK_THROWS_AS(engine.client->check(engine.client->send_update_weights({{"names", Json::array()}}).get()), Error);
  CHECK_THROWS_AS(engine.client->check(engine.client->send_finish_weight_update(1).get()), Error);
  CHECK(engine.client->weight_version().text == "default");
  CHECK(engine.executor.finishes == 0);
}
