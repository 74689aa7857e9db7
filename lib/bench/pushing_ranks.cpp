#include "bench/pushing_ranks.hpp"

#include <algorithm>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "bench/rank_meeting.hpp"
#include "channels/device_push.hpp"
#include "channels/nccl_channel.hpp"
#include "channels/peer_gather.hpp"
#include "channels/shard_gather.hpp"
#include "channels/shard_store.hpp"
#include "gpu/device.hpp"
#include "gpu/raw_copy.hpp"
#include "weights/network_push.hpp"
#include "weights/shared_arena.hpp"
#include "weights/slot_push.hpp"

namespace vime::bench {
namespace {

// Of ranks with each other: the one that waits for the engine hears of its silence first, and can say so.
milliseconds patience(const RanksOptions& options) {
  return 2 * options.timeout;
}

void fill_host(std::byte* memory, uint64_t bytes, uint64_t seed) {
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = mix_key(seed, at);
    std::copy_n(reinterpret_cast<const std::byte*>(&word), std::min<uint64_t>(sizeof word, bytes - at), memory + at);
  }
}

}  // namespace

Transport parse_transport(const std::string& name) {
  if (name == "ipc") return Transport::ipc;
  if (name == "nccl") return Transport::nccl;
  if (name == "shm") return Transport::shm;
  if (name == "tcp") return Transport::tcp;
  throw Error(ErrorKind::refused, "no transport \"" + name + "\"; there are ipc, nccl, shm, tcp");
}

bool on_gpus(Transport transport) {
  return transport == Transport::ipc || transport == Transport::nccl;
}

bool over_network(Transport transport) {
  return transport == Transport::nccl || transport == Transport::tcp;
}

// One rank's thread in its slot.
struct PushingRanks::Rank final : weights::SlotGroup {
  Rank(RankMeeting& slot, int own, int slot_size) : index(own), in_slot(own % slot_size), slot_(slot) {}

  std::vector<std::string> gather(const std::string& mine) override { return slot_.gather(in_slot, mine); }
  void barrier() override { slot_.barrier(in_slot); }
  void leave(std::exception_ptr reason) { slot_.fail(in_slot, reason); }

  int index;
  int in_slot;
  arch::ArenaLayout layout;
  std::unique_ptr<weights::Arena> arena;
  std::unique_ptr<gpu::Communicator> tp;
  std::unique_ptr<channels::StagedPush> staged;  // where whole tensors are brought together
  std::unique_ptr<channels::ShardStore> store;   // for checksums
  std::vector<weights::PlacedTensor> placed;     // where there is one
  weights::SentManifests sent;
  std::unique_ptr<weights::NetworkPush> network;  // of rank 0
  double update_s = 0;                            // of the last push; of leaders
  std::string error;                              // likewise

 private:
  RankMeeting& slot_;
};

// What a rank waits for ends when another has failed, or by its own deadline; so does this.
template <typename Step>
void PushingRanks::on_all(const Step& step) {
  meeting_->reset();
  for (const auto& slot : slots_) slot->reset();
  std::vector<std::future<void>> running;
  for (const auto& rank : ranks_) {
    running.push_back(std::async(std::launch::async, [&, own = rank.get()] {
      try {
        if (on_gpus(options_.transport)) gpu::select_device(options_.uuids[static_cast<std::size_t>(own->index)]);
        step(*own);
      } catch (...) {
        meeting_->fail(own->index, std::current_exception());
        own->leave(std::current_exception());
      }
    }));
  }
  for (std::future<void>& rank : running) rank.get();
  meeting_->rethrow_failure();
}

PushingRanks::PushingRanks(RanksOptions options)
    : options_(std::move(options)),
      meeting_(std::make_unique<RankMeeting>(static_cast<int>(options_.uuids.size()), patience(options_))) {
  const int size = static_cast<int>(options_.uuids.size());
  const bool gpus = on_gpus(options_.transport);
  const bool network = over_network(options_.transport);
  const int slot_size = network ? size : options_.engine_workers;
  VIME_CHECK(size % slot_size == 0, "engines that divide the ranks");
  const bool gathers = size > 1 && (network || options_.whole_tensors);
  VIME_CHECK(gpus || !gathers, "whole tensors are brought together on GPUs");
  whole_bucket_ = weights::bucket_of(tensors_of(options_.model));
  for (int index = 0; index < size; ++index) {
    if (index % slot_size == 0) slots_.push_back(std::make_unique<RankMeeting>(slot_size, patience(options_)));
    ranks_.push_back(std::make_unique<Rank>(*slots_.back(), index, slot_size));
  }
  const std::string unique_id = gathers ? gpu::Communicator::unique_id() : "";
  on_all([&](Rank& rank) {
    rank.layout = layout_of(options_.model, rank.index, size);
    const uint64_t bytes = rank.layout.total_bytes;
    if (gpus) {
      rank.arena = std::make_unique<channels::DeviceArena>(bytes);
      rank.store = std::make_unique<channels::DeviceShardStore>(rank.layout, rank.arena->data(), false, nullptr);
    } else {
      rank.arena = std::make_unique<weights::SharedArena>(bytes);
      rank.store = std::make_unique<channels::HostShardStore>(rank.layout, rank.arena->data(), false, nullptr, nullptr);
    }
    if (size > 1) return;
    for (const arch::ArenaEntry& entry : rank.layout.entries)
      rank.placed.push_back({entry.parameter.full, entry.offset});
  });
  if (!gathers) return;
  std::vector<char> reached(ranks_.size());
  on_all([&](Rank& rank) {
    reached[static_cast<std::size_t>(rank.index)] =
        std::all_of(options_.uuids.begin(), options_.uuids.end(), gpu::reaches);
  });
  const bool from_peers = !options_.over_nccl && std::find(reached.begin(), reached.end(), 0) == reached.end();
  on_all([&](Rank& rank) { make_staged(rank, from_peers, unique_id); });
}

void PushingRanks::make_staged(Rank& rank, bool from_peers, const std::string& unique_id) {
  const int size = static_cast<int>(ranks_.size());
  std::vector<weights::Bucket> buckets = weights::pack_buckets(tensors_of(options_.model), options_.buffer_bytes, 256);
  if (from_peers) {
    const bool shows = !over_network(options_.transport) || rank.index == 0;
    if (!shows) return;
    channels::PeerGatherOptions gather;
    gather.layouts = rank_layouts(options_.model, size);
    gather.arenas.emplace_back();
    for (const auto& other : ranks_) gather.arenas[0].push_back(other->arena->data());
    for (const std::string& uuid : options_.uuids) gpu::read_from(uuid);
    gather.own = {0, rank.index};
    gather.timeout = options_.timeout;
    gather.buckets = std::move(buckets);
    rank.staged = std::make_unique<channels::StagedPush>(std::make_unique<channels::PeerGather>(std::move(gather)));
    return;
  }
  rank.tp = std::make_unique<gpu::Communicator>(
      gpu::CommunicatorOptions{"tp", rank.index, size, patience(options_), [this] { return meeting_->failure(); }},
      unique_id);
  channels::GatherOptions gather;
  gather.layouts = rank_layouts(options_.model, size);
  gather.tp_rank = rank.index;
  gather.tp = rank.tp.get();
  gather.arena = rank.arena->data();
  gather.buckets = std::move(buckets);
  rank.staged = std::make_unique<channels::StagedPush>(std::make_unique<channels::ShardGather>(std::move(gather)));
}

PushingRanks::~PushingRanks() {
  try {
    on_all([](Rank& rank) {
      rank.network.reset();
      rank.staged.reset();
      rank.tp.reset();
    });
  } catch (const std::exception& error) {
    log::error("bench", std::string("end of the ranks: ") + error.what());
  }
}

// Ranks that hold the same part of a tensor have the same bytes there, as those of a trainer do.
void PushingRanks::new_weights(uint64_t seed) {
  const auto fill = [&](std::byte* memory, uint64_t bytes, uint64_t key) {
    on_gpus(options_.transport) ? gpu::fill_random(memory, bytes, key) : fill_host(memory, bytes, key);
  };
  on_all([&](Rank& rank) {
    fill(rank.arena->data(), rank.arena->bytes(), mix_key(seed, static_cast<uint64_t>(rank.index)));
    for (std::size_t i = 0; i < rank.layout.entries.size(); ++i) {
      const arch::ArenaEntry& entry = rank.layout.entries[i];
      if (arch::sharers_of(entry.parameter, static_cast<int>(ranks_.size())) == 1) continue;
      fill(rank.arena->data() + entry.offset, entry.bytes,
           mix_key(seed, i + ranks_.size(), static_cast<uint64_t>(entry.shard.begin)));
    }
  });
}

void PushingRanks::send(Rank& rank, weights::EngineClient& engine, int64_t version, bool init_needed) {
  const bool leads = rank.in_slot == 0;
  std::optional<weights::SlotPush> slot;
  weights::NetworkPush* network = nullptr;
  if (!over_network(options_.transport)) {
    weights::SlotPushOptions options;
    options.slot = {engine.address().id, rank.index - rank.in_slot, options_.engine_workers};
    options.rank = rank.index;
    options.uuid = options_.uuids[static_cast<std::size_t>(rank.index)];
    options.group = &rank;
    options.engine = leads ? &engine : nullptr;
    options.version = version;
    options.init_needed = init_needed;
    options.backend = on_gpus(options_.transport) ? "ipc" : "shm";
    options.lifetime = rank.staged ? weights::Lifetime::bucket : weights::Lifetime::push;
    options.sent = &rank.sent;
    slot.emplace(std::move(options));
    slot->start();
  } else if (leads) {
    network = rank.network.get();
    network->start({{&engine, options_.engine_workers, init_needed}}, version);
  }
  const auto start = SteadyClock::now();
  if (rank.staged) {
    rank.staged->send(slot, network);
  } else if (slot && ranks_.size() > 1) {
    slot->begin_shards(whole_bucket_, replica_of(rank));
    slot->complete();
  } else if (slot || network != nullptr) {
    std::vector<weights::ArenaChunk> messages;
    if (network != nullptr) messages = weights::arena_chunks(rank.placed, options_.chunk_bytes);
    channels::send_arena(*rank.arena, rank.placed, std::move(messages), slot, network);
  }
  // Over the network the bytes are out when the push is finished.
  std::vector<weights::EngineResult> results;
  if (network != nullptr) results = network->finish();
  rank.update_s = leads ? seconds_since(start) : 0;
  if (slot) {
    if (const auto result = slot->finish()) results.push_back(*result);
  }
  rank.error.clear();
  for (const weights::EngineResult& result : results) rank.error += result.error;
}

weights::ReplicaPlaces PushingRanks::replica_of(const Rank& rank) const {
  weights::ReplicaPlaces replica;
  replica.ranks.emplace_back();
  for (const auto& other : ranks_) replica.ranks[0].push_back({other->arena->handle(), 0, other->arena->bytes()});
  replica.nearest = {0, rank.index};
  return replica;
}

PushTimes PushingRanks::push(const std::vector<weights::EngineClient*>& engines, int64_t version, bool init_needed) {
  VIME_CHECK(engines.size() == slots_.size(), "engines for the ranks");
  if (over_network(options_.transport) && !ranks_[0]->network) {
    const std::string token = random_token();
    ranks_[0]->network = options_.transport == Transport::tcp
                             ? std::make_unique<weights::NetworkPush>("127.0.0.1", token, options_.timeout)
                             : std::make_unique<weights::NetworkPush>([this, token](int world_size) {
                                 return std::make_unique<channels::NcclSource>(
                                     channels::own_meeting_place("127.0.0.1", token), world_size, options_.timeout);
                               });
  }
  const auto engine_of = [&](const Rank& rank) -> weights::EngineClient& {
    return *engines[static_cast<std::size_t>(rank.index - rank.in_slot) / static_cast<std::size_t>(ranks_per_slot())];
  };
  PushTimes times;
  const auto preparing = SteadyClock::now();
  on_all([](Rank& rank) {
    if (rank.staged) rank.staged->prepare();
  });
  if (ranks_[0]->staged) times.prepare_s = seconds_since(preparing);
  const auto pausing = SteadyClock::now();
  on_all([&](Rank& rank) {
    if (rank.in_slot == 0) engine_of(rank).pause("abort", true);
  });
  on_all([&](Rank& rank) { send(rank, engine_of(rank), version, init_needed); });
  for (const auto& rank : ranks_) {
    times.update_s = std::max(times.update_s, rank->update_s);
    times.error += rank->error;
  }
  if (times.error.empty()) {
    on_all([&](Rank& rank) {
      if (rank.in_slot == 0) engine_of(rank).resume();
    });
  }
  times.pause_s = seconds_since(pausing);
  return times;
}

std::map<std::string, uint64_t> PushingRanks::checksums() {
  std::vector<std::vector<uint64_t>> parts(ranks_.size());
  on_all([&](Rank& rank) { parts[static_cast<std::size_t>(rank.index)] = rank.store->checksums(); });
  std::map<std::string, uint64_t> sums;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::vector<arch::ArenaEntry>& entries = ranks_[i]->layout.entries;
    for (std::size_t entry = 0; entry < entries.size(); ++entry) {
      if (entries[entry].shard.owner()) sums[entries[entry].parameter.full.name] += parts[i][entry];
    }
  }
  return sums;
}

std::vector<std::string> PushingRanks::handles() const {
  std::vector<std::string> handles;
  for (const auto& rank : ranks_) handles.push_back(rank->arena->handle());
  return handles;
}

uint64_t PushingRanks::extra_bytes() const {
  uint64_t bytes = 0;
  for (const auto& rank : ranks_) bytes += rank->staged ? rank->staged->extra_bytes() : 0;
  return bytes;
}

uint64_t PushingRanks::arena_bytes() const {
  return ranks_[0]->arena->bytes();
}

double PushingRanks::quickest_broadcast_ms(const std::string& unique_id, int workers, uint64_t bytes, int repeat) {
  gpu::select_device(options_.uuids[0]);
  gpu::Communicator group({"plain", 0, 1 + workers, options_.timeout, {}}, unique_id);
  const gpu::OwnedStream stream;
  gpu::Event begin(true), end(true);
  double quickest = 0;
  for (int i = 0; i < repeat; ++i) {
    begin.record(stream.get());
    group.broadcast(ranks_[0]->arena->data(), bytes, 0, stream.get());
    end.record(stream.get());
    group.wait(stream.get());
    const double ms = end.since(begin);
    if (i > 0) quickest = i == 1 ? ms : std::min(quickest, ms);  // the first one connects
  }
  return quickest;
}

}  // namespace vime::bench
