// Pushes between processes on GPUs: a trainer's ranks here, an engine with its HTTP front in another process.
#include <doctest/doctest.h>

#include <signal.h>

#include <cstdio>
#include <future>
#include <memory>

#include "base/error.hpp"
#include "bench/engine_process.hpp"
#include "bench/pushing_ranks.hpp"
#include "bench/weight_sync.hpp"
#include "bench/weights_engine.hpp"
#include "channels/device_push.hpp"
#include "channels/nccl_channel.hpp"
#include "gpu/device.hpp"
#include "gpu/roles.hpp"
#include "weights/version.hpp"

using namespace vime;
using namespace vime::bench;

namespace {

const test::Role engine_role("engine", [](const std::vector<std::string>& arguments) {
  return serve_weights(parse_json(arguments.at(0), "options"));
});

const std::vector<std::string> kEngine = {"/proc/self/exe", "--role", "engine"};

// The benchmark itself: --role weight-sync MODEL TRANSPORT RANKS REPEAT [BUFFER MIB] [CHUNK MIB] [FILE].
const test::Role bench_role("weight-sync", [](const std::vector<std::string>& arguments) {
  WeightSyncOptions options;
  options.model = arguments.at(0);
  options.transport = arguments.at(1);
  options.tensor_parallel = std::stoi(arguments.at(2));
  options.repeat = std::stoi(arguments.at(3));
  if (arguments.size() > 4) options.buffer_bytes = std::stoull(arguments[4]) << 20;
  if (arguments.size() > 5) options.chunk_bytes = std::stoull(arguments[5]) << 20;
  options.engine_command = kEngine;
  try {
    return weight_sync(options);
  } catch (const Error& error) {
    std::printf("%s %s %s: %s\n", arguments[0].c_str(), arguments[1].c_str(), arguments[2].c_str(), error.what());
    return exit_status(error.kind());
  }
});

constexpr milliseconds kTimeout{20'000};

// Whether colocated engines are shown whole tensors that the ranks bring together, and how.
enum class Gather { none, from_peers, over_nccl };

// Ranks and an engine of the small model.
struct Pair {
  std::vector<std::string> ranks, workers;
  EngineProcess engine;
  PushingRanks trainer;
  http::Client http;
  weights::EngineClient client;
  int64_t version = 0;

  Pair(Transport transport, int tensor_parallel, milliseconds timeout = kTimeout, Gather gather = Gather::none)
      : ranks(uuids(0, tensor_parallel)),
        workers(transport == Transport::nccl ? uuids(tensor_parallel, 1) : ranks),
        engine(kEngine, {{"model", "small"}, {"uuids", workers}, {"gpu", true}, {"timeout_ms", timeout.count()}}),
        trainer(options(transport, timeout, gather)),
        client(http, {0, "http://127.0.0.1:" + std::to_string(engine.port()), ""}, timeout) {}

  static std::vector<std::string> uuids(int first, int count) {
    std::vector<std::string> uuids;
    for (int i = first; i < first + count; ++i) uuids.push_back(gpu::device_uuid(i));
    return uuids;
  }
  RanksOptions options(Transport transport, milliseconds timeout, Gather gather) const {
    RanksOptions options;
    options.model = model_list("small");
    options.transport = transport;
    options.uuids = ranks;
    options.engine_workers = static_cast<int>(workers.size());
    options.whole_tensors = gather != Gather::none;
    options.over_nccl = gather == Gather::over_nccl;
    options.buffer_bytes = 20 << 20;  // several buckets
    options.chunk_bytes = 20 << 20;
    options.timeout = timeout;
    return options;
  }
  std::string push(bool init_needed) {
    trainer.new_weights(static_cast<uint64_t>(++version));
    return trainer.push({&client}, version, init_needed).error;
  }
  void check_contents() {
    CHECK(weights::version_problems(version, {client.weight_version()}).empty());
    CHECK(weights::checksum_problems(trainer.checksums(), {{"engine", client.checksums()}}).empty());
  }
};

void push_three_times(Transport transport, int tensor_parallel, Gather gather = Gather::none) {
  Pair pair(transport, tensor_parallel, kTimeout, gather);
  for (int i = 0; i < 3; ++i) {
    CHECK(pair.push(i == 0) == "");
    pair.check_contents();
  }
}

}  // namespace

TEST_CASE("weights go from a trainer's arena into a colocated engine's, through a handle") {
  push_three_times(Transport::ipc, 1);
}

TEST_CASE("two hundred pushes take no more of the GPU's memory than two, and go by the same handle") {
  Pair pair(Transport::ipc, 1);
  CHECK(pair.push(true) == "");
  CHECK(pair.push(false) == "");
  pair.check_contents();  // the sums take memory of their own, once
  const std::vector<std::string> handles = pair.trainer.handles();
  // The GPU tells what all processes hold, and others come and go. What pushes take is missing after every round.
  bool kept = false;
  for (int round = 0; round < 6 && !kept; ++round) {
    const uint64_t before = gpu::memory_info().free_bytes;
    for (int i = 0; i < 200; ++i) CHECK(pair.push(false) == "");
    kept = gpu::memory_info().free_bytes >= before;
  }
  CHECK(kept);
  pair.check_contents();
  CHECK(pair.trainer.handles() == handles);
}

TEST_CASE("both engine workers read the shards of two ranks" * doctest::skip(gpu::device_count() < 2)) {
  push_three_times(Transport::ipc, 2);
}

TEST_CASE("shards of two ranks are gathered, and both engine workers read whole tensors" *
          doctest::skip(gpu::device_count() < 2)) {
  push_three_times(Transport::ipc, 2, Gather::from_peers);
  push_three_times(Transport::ipc, 2, Gather::over_nccl);
}

TEST_CASE("two engines of one worker each read the shards of both ranks, on the other GPU too" *
          doctest::skip(gpu::device_count() < 2)) {
  WeightSyncOptions options;
  options.model = "small";
  options.tensor_parallel = 2;
  options.engine_workers = 1;
  options.repeat = 2;
  options.engine_command = kEngine;
  CHECK(weight_sync(options) == 0);
}

TEST_CASE("weights go to another GPU through NCCL" * doctest::skip(gpu::device_count() < 2)) {
  push_three_times(Transport::nccl, 1);
}

TEST_CASE("a push that an engine refuses in the middle fails, and the next one makes a new group and is whole" *
          doctest::skip(gpu::device_count() < 2)) {
  Pair pair(Transport::nccl, 1);
  CHECK(pair.push(true) == "");
  pair.check_contents();
  // An engine of another model takes the first bytes and finds that they are of another shape.
  EngineProcess other(kEngine,
                      {{"model", "tiny"}, {"uuids", pair.workers}, {"gpu", true}, {"timeout_ms", kTimeout.count()}});
  weights::EngineClient client(pair.http, {1, "http://127.0.0.1:" + std::to_string(other.port()), ""}, kTimeout);
  const auto start = SteadyClock::now();
  const std::string error = pair.trainer.push({&client}, ++pair.version, true).error;
  CHECK(error.find("engine 1") != std::string::npos);
  CHECK(error.find("expected shape") != std::string::npos);
  CHECK(seconds_since(start) < 15);  // the refusal ends it, not the deadline
  CHECK_FALSE(weights::version_problems(pair.version, {client.weight_version()}).empty());
  for (int i = 0; i < 2; ++i) {
    CHECK(pair.push(i == 0) == "");
    pair.check_contents();
  }
}

TEST_CASE(
    "an engine that dies or hangs in the middle of a broadcast fails the push within the deadline, not the source" *
    doctest::skip(gpu::device_count() < 2)) {
  const ModelList model = model_list("small");
  gpu::select_device(gpu::device_uuid(0));
  const channels::DeviceArena arena(layout_of(model, 0, 1).total_bytes);
  std::vector<weights::PlacedTensor> placed;
  for (const arch::ArenaEntry& entry : layout_of(model, 0, 1).entries)
    placed.push_back({entry.parameter.full, entry.offset});
  weights::NetworkPush network([](int world_size) {
    return std::make_unique<channels::NcclSource>(channels::own_meeting_place("127.0.0.1", "token"), world_size,
                                                  milliseconds(3000));
  });
  http::Client http;
  for (const int signal : {SIGKILL, SIGSTOP, 0}) {
    CAPTURE(signal);
    EngineProcess engine(kEngine,
                         {{"model", "small"}, {"uuids", {gpu::device_uuid(1)}}, {"gpu", true}, {"timeout_ms", 3000}});
    weights::EngineClient client(http, {0, "http://127.0.0.1:" + std::to_string(engine.port()), ""},
                                 milliseconds(3000));
    network.start({{&client, 1, true}}, 1);
    if (signal != 0) ::kill(engine.pid(), signal);
    const auto start = SteadyClock::now();
    std::vector<weights::Bucket> buckets;
    std::vector<const std::byte*> payloads;
    for (weights::ArenaChunk& chunk : weights::arena_chunks(placed, 8 << 20)) {
      payloads.push_back(arena.data() + chunk.begin);
      buckets.push_back(std::move(chunk.bucket));
    }
    network.announce(buckets);
    for (size_t i = 0; i < buckets.size(); ++i) network.send(buckets[i], payloads[i]);
    const std::vector<weights::EngineResult> results = network.finish();
    CHECK(seconds_since(start) < 9);
    REQUIRE(results.size() == 1);
    CHECK((results[0].error == "") == (signal == 0));
    if (signal != 0) CHECK(results[0].error.find("engine 0") != std::string::npos);
    if (signal != 0) ::kill(engine.pid(), SIGKILL);
  }
}

TEST_CASE("a source that dies lets its engine go at once" * doctest::skip(gpu::device_count() < 2)) {
  http::Client http;
  EngineProcess engine(kEngine,
                       {{"model", "small"}, {"uuids", {gpu::device_uuid(1)}}, {"gpu", true}, {"timeout_ms", 60000}});
  weights::EngineClient client(http, {0, "http://127.0.0.1:" + std::to_string(engine.port()), ""}, milliseconds(60000));
  gpu::select_device(gpu::device_uuid(0));
  auto network = std::make_unique<weights::NetworkPush>([](int world_size) {
    return std::make_unique<channels::NcclSource>(channels::own_meeting_place("127.0.0.1", "token"), world_size,
                                                  milliseconds(60000));
  });
  network->start({{&client, 1, true}}, 1);
  const weights::Bucket bucket = weights::pack_buckets(tensors_of(model_list("small")), uint64_t{1} << 30)[0];
  weights::SentManifests sent;
  std::future<http::Outcome> reply = client.send_update_weights(sent.update_info({&bucket, 1}));
  CHECK(reply.wait_for(milliseconds(500)) == std::future_status::timeout);  // it waits for the broadcast
  const auto start = SteadyClock::now();
  network.reset();
  const http::Outcome outcome = reply.get();
  CHECK(seconds_since(start) < 5);
  CHECK(outcome.reply.status == 500);
  CHECK(outcome.reply.body.find("the source has gone or given up") != std::string::npos);
}
