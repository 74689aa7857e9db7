// vime's own pushes go into servers that take what vLLM takes, release by release: by memory that is read where it
// lies, by stagings, and over the network to several servers in one group.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <future>

#include "base/deadline.hpp"
#include "checkpoints.hpp"
#include "served.hpp"
#include "unit/weights/slot_ranks.hpp"
#include "vllm/pickle.hpp"
#include "vllm/store_server.hpp"
#include "weights/network_push.hpp"
#include "weights/shared_arena.hpp"
#include "weights/slot_push.hpp"

using namespace vime;
using namespace vime::stand_in;
using weights::Lifetime;

namespace {

constexpr uint64_t kBufferBytes = 20'000;  // several buckets
constexpr int kWorkers = 2;

std::vector<tensor::TensorInfo> infos_of(const Checkpoint& checkpoint) {
  std::vector<tensor::TensorInfo> infos;
  for (const Tensor& tensor : checkpoint) infos.push_back(tensor.info);
  return infos;
}

// A trainer rank's weights, with gaps between tensors as an arena has them.
struct RankArena {
  explicit RankArena(const Checkpoint& checkpoint) : arena(4u << 20) {
    uint64_t at = 0;
    for (const Tensor& tensor : checkpoint) {
      std::memcpy(arena.data() + at, tensor.bytes.data(), tensor.bytes.size());
      all.entries.push_back({tensor.info, at});
      at += (tensor.bytes.size() + 255) / 256 * 256;
    }
  }
  weights::SharedArena arena;
  weights::Bucket all;
};

void copy_bucket(const weights::Bucket& bucket, const Checkpoint& checkpoint, std::byte* into) {
  for (const weights::BucketEntry& entry : bucket.entries) {
    for (const Tensor& tensor : checkpoint) {
      if (tensor.info.name == entry.info.name)
        std::memcpy(into + entry.offset, tensor.bytes.data(), tensor.bytes.size());
    }
  }
}

class Pushed {
 public:
  Pushed(const std::string& version, const std::string& backend, std::vector<std::string> env = {}) {
    write_file_atomic(modules_.path() / "ray.py", "");
    ServeOptions options;
    options.version = version;
    options.arguments = {"--weight-transfer-config", Json{{"backend", backend}}.dump(), "-tp",
                         std::to_string(kWorkers)};
    options.env = {"VLLM_ALLOW_INSECURE_SERIALIZATION=1", "PYTHONPATH=" + modules_.path().string(),
                   "VIME_STAND_IN_UUIDS=" + weights::uuid_of(0) + "," + weights::uuid_of(1)};
    options.env.insert(options.env.end(), env.begin(), env.end());
    served_ = std::make_unique<Served>(options);
    client_ = std::make_unique<weights::EngineClient>(
        http_, weights::EngineAddress{0, "http://127.0.0.1:" + std::to_string(served_->port()), "", "vllm " + version},
        milliseconds(20'000), milliseconds(20'000), kBufferBytes);
  }
  Served& served() { return *served_; }
  weights::EngineClient& client() { return *client_; }

 private:
  TempDir modules_;
  http::Client http_;
  std::unique_ptr<Served> served_;
  std::unique_ptr<weights::EngineClient> client_;
};

// Both ranks of the slot; the leader's error.
std::string push_slot(weights::EngineClient& engine, const Checkpoint& checkpoint, Lifetime lifetime, int64_t version) {
  weights::ThreadSlot threads(kWorkers);
  const auto rank_main = [&](int rank) -> std::optional<weights::EngineResult> {
    weights::ThreadSlot::Member group(threads, rank);
    weights::SlotPushOptions options;
    options.slot = {0, 0, kWorkers};
    options.rank = rank;
    options.uuid = weights::uuid_of(rank);
    options.group = &group;
    options.engine = rank == 0 ? &engine : nullptr;
    options.version = version;
    options.init_needed = version == 1;
    options.backend = "ipc";
    options.lifetime = lifetime;
    weights::SlotPush push(std::move(options));
    push.start();
    const RankArena own(checkpoint);
    const weights::SharedArena staging(1u << 20);
    if (lifetime == Lifetime::push) push.send(own.all, {own.arena.handle(), 0, own.arena.bytes()});
    for (const weights::Bucket& bucket : weights::vllm_buckets(infos_of(checkpoint), kBufferBytes)) {
      if (lifetime == Lifetime::push) break;
      copy_bucket(bucket, checkpoint, staging.data());
      push.send(bucket, {staging.handle(), 0, staging.bytes()});
    }
    const auto result = push.finish();
    group.barrier();  // the memory stays until the push is finished
    return result;
  };
  auto second = std::async(std::launch::async, rank_main, 1);
  const auto result = rank_main(0);
  second.get();
  REQUIRE(result.has_value());
  return result->error;
}

double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// What a server that was started on the changed weights says.
std::vector<double> expected_logprobs(const Checkpoint& checkpoint) {
  const TempDir folder;
  write_checkpoint(checkpoint, folder.path());
  ServeOptions options;
  options.model = folder.path().string();
  return Served(options).prompt_logprobs(kPrompt);
}

// Broadcasts as the stand-in takes them: the group's unique id names a port, see support/vllm/collective.hpp.
class PlainGroup final : public weights::NetworkSource {
 public:
  explicit PlainGroup(int world_size)
      : world_size_(world_size), listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), store_("127.0.0.1") {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    REQUIRE(::listen(listening_.get(), 16) == 0);
    vllm::NcclUniqueId id{};
    const std::string text = "tcp:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    std::memcpy(id.data(), text.data(), text.size());
    store_.set(vllm::kUniqueIdKey, vllm::unique_id_pickle(id));
  }
  Json init_info() const override { return {{"master_address", "127.0.0.1"}, {"master_port", store_.port()}}; }
  bool all_or_none() const override { return true; }
  void meet(const weights::Abandoned& abandoned) override {
    std::vector<bool> seen(static_cast<std::size_t>(world_size_));
    while (links_.size() + 1 < static_cast<std::size_t>(world_size_)) {
      pollfd waiting{listening_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 50) == 0) {
        for (int rank = 1; rank < world_size_; ++rank) {
          if (abandoned(rank)) throw Error(ErrorKind::process_failed, "rank " + std::to_string(rank) + " stays away");
        }
        continue;
      }
      UniqueFd fd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      uint32_t hello[2];
      REQUIRE(::recv(fd.get(), hello, sizeof hello, MSG_WAITALL) == sizeof hello);
      CHECK(hello[1] == static_cast<uint32_t>(world_size_));
      CHECK_FALSE(seen.at(hello[0]));
      seen[hello[0]] = true;
      float number = 0;
      REQUIRE(::recv(fd.get(), &number, sizeof number, MSG_WAITALL) == sizeof number);
      REQUIRE(::send(fd.get(), &number, sizeof number, MSG_NOSIGNAL) == sizeof number);
      links_.push_back(std::move(fd));
    }
  }
  std::map<int, std::string> send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                  const weights::Abandoned&) override {
    messages_ += 1;
    for (const UniqueFd& link : links_) {
      if (::send(link.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes)) continue;
      std::map<int, std::string> missed;
      for (const int rank : ranks) missed[rank] = "gone";
      return missed;
    }
    return {};
  }
  std::map<int, std::string> complete(const std::vector<int>&, const weights::Abandoned&) override { return {}; }
  bool broken() const override { return false; }
  static int messages_;

 private:
  int world_size_;
  UniqueFd listening_;
  vllm::StoreServer store_;
  std::vector<UniqueFd> links_;
};
int PlainGroup::messages_ = 0;

std::vector<weights::EngineResult> push_over_network(weights::NetworkPush& push,
                                                     const std::vector<weights::NetworkTarget>& targets,
                                                     const Checkpoint& checkpoint, int64_t version) {
  push.start(targets, version);
  const std::vector<weights::Bucket> buckets = weights::vllm_buckets(infos_of(checkpoint), kBufferBytes);
  push.announce(buckets);
  std::vector<std::vector<std::byte>> payloads;
  for (const weights::Bucket& bucket : buckets) {
    payloads.emplace_back(bucket.bytes);
    copy_bucket(bucket, checkpoint, payloads.back().data());
    push.send(bucket, payloads.back().data());
  }
  return push.finish();
}

weights::MakeNetworkSource plain_group() {
  return [](int world_size) { return std::make_unique<PlainGroup>(world_size); };
}

}  // namespace

TEST_CASE("vime's colocated pushes are right in every release, from memory that stays and from stagings") {
  const Checkpoint other = changed(read_checkpoint(ServeOptions().model));
  const std::vector<double> expected = expected_logprobs(other);
  for (const std::string version : {"0.21.0", "0.24.0", "0.25.1", "0.32.0"}) {
    for (const Lifetime lifetime : {Lifetime::push, Lifetime::bucket}) {
      CAPTURE(version);
      CAPTURE(lifetime == Lifetime::push);
      Pushed engine(version, "ipc");
      CHECK(furthest(engine.served().prompt_logprobs(kPrompt), expected) > 0.1);
      engine.client().pause("abort", true);
      const std::string error = push_slot(engine.client(), other, lifetime, 1);
      if (version == "0.21.0" && lifetime == Lifetime::bucket) {
        CHECK(error.find("packed buffer") != std::string::npos);  // it knows none
        continue;
      }
      CHECK(error == "");
      engine.client().resume();
      CHECK(furthest(engine.served().prompt_logprobs(kPrompt), expected) < 1e-5);
      if (version == "0.32.0") CHECK(engine.client().weight_version().text == "1");
      // A second push needs no init.
      engine.client().pause("abort", true);
      CHECK(push_slot(engine.client(), read_checkpoint(ServeOptions().model), lifetime, 2) == "");
      engine.client().resume();
      CHECK(furthest(engine.served().prompt_logprobs(kPrompt), expected) > 0.1);
    }
  }
}

TEST_CASE("over the network several servers of a group get one broadcast for each chunk that they cut themselves") {
  const Checkpoint other = changed(read_checkpoint(ServeOptions().model));
  const std::vector<double> expected = expected_logprobs(other);
  for (const std::string version : {"0.21.0", "0.25.1", "0.27.0", "0.32.0"}) {
    CAPTURE(version);
    Pushed first(version, "nccl"), second(version, "nccl");
    weights::NetworkPush push(plain_group());
    PlainGroup::messages_ = 0;
    for (Pushed* engine : {&first, &second}) engine->client().pause("abort", true);
    for (const weights::EngineResult& result :
         push_over_network(push, {{&first.client(), kWorkers, true}, {&second.client(), kWorkers, true}}, other, 1)) {
      CHECK(result.error == "");
    }
    CHECK(PlainGroup::messages_ > 2);
    for (Pushed* engine : {&first, &second}) {
      engine->client().resume();
      CHECK(furthest(engine->served().prompt_logprobs(kPrompt), expected) < 1e-5);
    }
  }
}

TEST_CASE("a server that fails in the middle of a push over the network is not waited for, and keeps no version") {
  const Checkpoint other = changed(read_checkpoint(ServeOptions().model));
  for (const char* fault : {"update=500", "start=500", "init=500", "finish=500"}) {
    CAPTURE(fault);
    Pushed engine("0.32.0", "nccl", {std::string("VIME_STAND_IN_FAULT=") + fault});
    weights::NetworkPush push(plain_group());
    engine.client().pause("abort", true);
    const auto results = push_over_network(push, {{&engine.client(), kWorkers, true}}, other, 1);
    REQUIRE(results.size() == 1);
    CHECK(results[0].error != "");
    CHECK(engine.client().weight_version().text == "default");
  }
}
