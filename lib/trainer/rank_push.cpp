// What a rank does for a push. An engine of its slot reads the weights where they lie, in this rank's arena or in those
// of all ranks of the replica; one that knows no shards is shown whole tensors, bucket by bucket. Whole tensors go,
// from rank 0, to the engines on the network too.
#include <algorithm>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "channels/nccl_channel.hpp"
#include "channels/peer_gather.hpp"
#include "channels/shard_copies.hpp"
#include "channels/shard_gather.hpp"
#include "gpu/device.hpp"
#include "trainer/rank.hpp"
#include "weights/bucket.hpp"
#include "weights/checksum.hpp"

namespace vime::trainer {
namespace {

constexpr uint64_t kDeviceAlignment = 256;  // of tensors in a GPU's staging
constexpr milliseconds kControlTimeout{60'000};
constexpr uint64_t kChunkBytes = uint64_t{1} << 30;  // of messages that are sent from the arena itself, at most

std::vector<weights::PlacedTensor> placed_tensors(const arch::ArenaLayout& layout,
                                                  const std::vector<tensor::TensorInfo>& wanted) {
  std::vector<weights::PlacedTensor> tensors;
  auto from = layout.entries.begin();  // both are in checkpoint order
  for (const tensor::TensorInfo& info : wanted) {
    const auto found = std::find_if(from, layout.entries.end(), [&](const arch::ArenaEntry& entry) {
      return entry.parameter.full.name == info.name;
    });
    VIME_CHECK(found != layout.entries.end(), info.name + " is not in this rank's arena");
    tensors.push_back({info, found->offset});
    from = found + 1;
  }
  return tensors;
}

uint64_t largest(const std::vector<weights::Bucket>& buckets) {
  uint64_t bytes = 1;
  for (const weights::Bucket& bucket : buckets) bytes = std::max(bytes, bucket.bytes);
  return bytes;
}

}  // namespace

std::vector<tensor::TensorInfo> TrainerRank::pushed_tensors() const {
  return whole_->tensors();
}

placement::Slot TrainerRank::slot_of_push(const placement::Slot& slot) const {
  return slot;
}

PushFigures TrainerRank::push(int64_t version, const std::vector<PushTarget>& targets) {
  VIME_CHECK(targets.size() == options_.plan.engines.size(), "one target for each engine of the plan");
  std::vector<std::unique_ptr<weights::EngineClient>> engines;
  for (const PushTarget& target : targets) {
    engines.push_back(std::make_unique<weights::EngineClient>(client_, target.address, options_.transfer_timeout,
                                                              kControlTimeout, options_.buffer_bytes));
  }
  const bool shards = shows_shards();
  std::optional<weights::SlotPush> slot;
  if (slot_) {
    const auto engine = static_cast<size_t>(slot_->slot().engine);
    weights::SlotPushOptions options;
    options.slot = slot_of_push(slot_->slot());
    options.rank = options_.rank;
    options.uuid = options_.plan.devices[static_cast<size_t>(place().device)].uuid;
    options.group = slot_.get();
    options.engine = engines[engine].get();
    options.version = version;
    options.init_needed = targets[engine].init_needed;
    options.backend = on_gpu() ? "ipc" : "shm";
    options.lifetime = goes_through_staging() && !shards ? weights::Lifetime::bucket : weights::Lifetime::push;
    options.sent = &sent_;
    slot.emplace(std::move(options));
    slot->start();
  }
  std::vector<weights::NetworkTarget> network_targets;
  for (const placement::Engine& engine : options_.plan.engines) {
    const auto at = static_cast<size_t>(engine.id);
    if (options_.routes[at] == spec::Route::network)
      network_targets.push_back({engines[at].get(), engine.count, targets[at].init_needed});
  }
  const bool is_source = options_.rank == 0 && !network_targets.empty();
  if (is_source && !network_push_) network_push_ = make_network_push();
  if (is_source) network_push_->start(network_targets, version);

  PushFigures figures;
  figures.prepare_s = std::exchange(prepare_s_, 0.0);
  weights::NetworkPush* const network = is_source ? network_push_.get() : nullptr;
  if (arenas_are_read()) await_weights();
  if (shards && slot) slot->begin_shards(weights::bucket_of(pushed_tensors()), arenas_->places());
  std::optional<weights::SlotPush> no_slot;
  std::optional<weights::SlotPush>& slot_of_wholes = shards ? no_slot : slot;
  if (on_gpu()) {
    send_from_gpu(slot_of_wholes, network, figures);
  } else {
    send_buckets(slot_of_wholes, network, figures);
  }
  weights_are_there_ = false;
  if (shards && slot) slot->complete();
  if (slot) {
    if (const std::optional<weights::EngineResult> result = slot->finish()) figures.results.push_back(*result);
  }
  if (is_source) {
    for (const weights::EngineResult& result : network_push_->finish()) figures.results.push_back(result);
  }
  return figures;
}

// Whether a rank of this replica has a slot whose engine reads its memory. The plan alone decides, so that all ranks of
// the replica agree; the same goes for sends_over_network().
bool TrainerRank::has_slot_reader() const {
  return std::any_of(options_.plan.ranks.begin(), options_.plan.ranks.end(), [&](const placement::TrainerRank& rank) {
    if (!is_of_replica(rank)) return false;
    return std::any_of(options_.plan.slots.begin(), options_.plan.slots.end(), [&](const placement::Slot& slot) {
      return slot.contains(rank.rank) && options_.routes[static_cast<size_t>(slot.engine)] == spec::Route::memory;
    });
  });
}

bool TrainerRank::sends_over_network() const {
  return is_of_replica(options_.plan.ranks[0]) &&
         std::find(options_.routes.begin(), options_.routes.end(), spec::Route::network) != options_.routes.end();
}

// Whether engines read the shards of all ranks of this replica. All ranks of it, and of every slot, agree.
bool TrainerRank::shows_shards() const {
  return arenas_ && arenas_->readable() && !options_.vllm_engines && has_slot_reader();
}

// Whether the replica's whole tensors are needed by anybody. All ranks of it agree.
bool TrainerRank::brings_together() {
  return goes_through_staging() && (sends_over_network() || (has_slot_reader() && !shows_shards()));
}

// Whether this rank shows whole tensors to anybody.
bool TrainerRank::shows_wholes() const {
  return (options_.rank == 0 && sends_over_network()) || (slot_ && !shows_shards());
}

// Whether anybody reads the arena of a rank on another device than his own: an engine's worker, or a rank of this
// replica. All ranks of it agree.
bool TrainerRank::arenas_are_read() {
  return arenas_ && arenas_->readable() && (shows_shards() || (on_gpu() && brings_together()));
}

// Returns when every rank of the replica has done what writes its weights. Collective over the replica.
void TrainerRank::await_weights() {
  if (std::exchange(weights_are_there_, true)) return;
  if (on_gpu()) gpu::synchronize();  // LibTorch's streams have written the weights
  groups_.tp->barrier();
  groups_.stages->barrier();  // with ranks whose tensor-parallel ranks are there
}

std::vector<weights::PlacedTensor> TrainerRank::placed() const {
  return placed_tensors(decoder_->layout(), pushed_tensors());
}

std::unique_ptr<weights::NetworkPush> TrainerRank::make_network_push() const {
  const std::string &host = options_.host, &token = options_.token;
  const auto timeout = options_.transfer_timeout;
  if (!on_gpu()) return std::make_unique<weights::NetworkPush>(host, token, timeout);
  const channels::MakeMeetingPlace place =
      options_.vllm_engines ? channels::vllm_meeting_place(host) : channels::own_meeting_place(host, token);
  return std::make_unique<weights::NetworkPush>(
      [place, timeout](int world_size) { return std::make_unique<channels::NcclSource>(place, world_size, timeout); });
}

// vLLM's messages have no bytes between tensors, so that an arena which has is no source for them.
std::vector<weights::ArenaChunk> TrainerRank::arena_messages() const {
  const std::vector<weights::PlacedTensor> tensors = placed();
  if (!options_.vllm_engines) return weights::arena_chunks(tensors, std::min(kChunkBytes, options_.buffer_bytes));
  std::vector<weights::ArenaChunk> chunks;
  size_t at = 0;
  for (weights::Bucket& bucket : weights::vllm_buckets(pushed_tensors(), options_.buffer_bytes)) {
    const uint64_t begin = tensors[at].offset;
    for (const weights::BucketEntry& entry : bucket.entries) {
      if (tensors[at++].offset != begin + entry.offset) return {};
    }
    chunks.push_back({begin, std::move(bucket)});
  }
  return chunks;
}

// All ranks of a replica agree, since an arena with whole tensors is the replica's only one.
bool TrainerRank::goes_through_staging() {
  if (!through_staging_)
    through_staging_ = whole_->needed() || (options_.vllm_engines && on_gpu() && arena_messages().empty());
  return *through_staging_;
}

// Null where this rank brings nothing together. All ranks of a replica call it at the same time, at their first push.
channels::StagedPush* TrainerRank::staged_push() {
  if (!on_gpu() || !brings_together()) return nullptr;
  if (staged_push_) return staged_push_.get();
  const bool alone = !whole_->needed() || arenas_->readable();
  if (alone && !shows_wholes()) return nullptr;
  staged_push_ = std::make_unique<channels::StagedPush>(alone ? peer_gather() : group_gather());
  return staged_push_.get();
}

std::vector<weights::Bucket> TrainerRank::staged_buckets() const {
  return options_.vllm_engines ? weights::vllm_buckets(pushed_tensors(), options_.buffer_bytes)
                               : weights::pack_buckets(pushed_tensors(), options_.buffer_bytes, kDeviceAlignment);
}

std::vector<std::vector<arch::ArenaLayout>> TrainerRank::replica_layouts() const {
  return arch::replica_layouts(options_.config, options_.dtype, groups_.tp->size(), groups_.stages->size());
}

std::unique_ptr<channels::BucketGather> TrainerRank::peer_gather() const {
  channels::PeerGatherOptions gather;
  gather.layouts = replica_layouts();
  gather.arenas = {{arena_->data()}};
  if (whole_->needed()) gather.arenas = arenas_->data();
  gather.own = {groups_.stages->rank(), groups_.tp->rank()};
  gather.buckets = staged_buckets();
  gather.timeout = options_.transfer_timeout;
  return std::make_unique<channels::PeerGather>(std::move(gather));
}

// Collective over the replica.
std::unique_ptr<channels::BucketGather> TrainerRank::group_gather() {
  const auto timeout = options_.meeting_timeout + options_.transfer_timeout;
  const auto join = [&](model::RankGroup& group) -> std::unique_ptr<gpu::Communicator> {
    if (group.size() == 1) return nullptr;
    const std::string id = group.broadcast_string(group.rank() == 0 ? gpu::Communicator::unique_id() : "", 0);
    return std::make_unique<gpu::Communicator>(
        gpu::CommunicatorOptions{"push, " + group.name(), group.rank(), group.size(), timeout}, id);
  };
  push_tp_ = join(*groups_.tp);
  push_stages_ = join(*groups_.stages);
  channels::GatherOptions gather;
  gather.layouts = replica_layouts();
  gather.stage = groups_.stages->rank();
  gather.tp_rank = groups_.tp->rank();
  gather.tp = push_tp_.get();
  gather.stages = push_stages_.get();
  gather.arena = arena_->data();
  gather.buckets = staged_buckets();
  return std::make_unique<channels::ShardGather>(std::move(gather));
}

double TrainerRank::prepare_push() {
  const bool read = arenas_are_read();
  channels::StagedPush* const staged = staged_push();
  if (!read && staged == nullptr) return 0.0;
  const auto start = SteadyClock::now();
  if (read) await_weights();
  if (staged != nullptr) {
    gpu::synchronize();  // LibTorch's streams have written the weights
    staged->prepare();
  }
  return prepare_s_ = seconds_since(start);
}

void TrainerRank::send_from_gpu(std::optional<weights::SlotPush>& slot, weights::NetworkPush* network,
                                PushFigures& figures) {
  gpu::synchronize();  // whoever reads the weights, here or in an engine, knows nothing of LibTorch's streams
  if (!goes_through_staging()) {
    std::vector<weights::ArenaChunk> messages;
    if (network != nullptr) messages = arena_messages();
    return channels::send_arena(*arena_, placed(), std::move(messages), slot, network);
  }
  if (channels::StagedPush* const staged = staged_push()) {
    staged->send(slot, network);
    figures.extra_bytes = staged->extra_bytes();
  }
}

// A rank whose arena holds whole tensors lets engines read from it; any other gathers each bucket into the staging
// first, which all ranks do together, whether they have a slot or not. Without a slot: for the network alone.
void TrainerRank::send_buckets(std::optional<weights::SlotPush>& slot, weights::NetworkPush* network,
                               PushFigures& figures) {
  const std::vector<tensor::TensorInfo> tensors = pushed_tensors();
  const std::vector<weights::Bucket> buckets = options_.vllm_engines
                                                   ? weights::vllm_buckets(tensors, options_.buffer_bytes)
                                                   : weights::pack_buckets(tensors, options_.buffer_bytes);
  if (whole_->needed()) {
    // A replica gathers for itself, and only where somebody reads.
    if (!brings_together()) return;
    if (!staging_ || staging_->bytes() < largest(buckets)) {
      staging_ = make_arena(largest(buckets));
    }
    for (const weights::Bucket& bucket : buckets) {
      whole_->gather(bucket, arena_->data(), staging_->data());
      if (slot) slot->send(bucket, {staging_->handle(), 0, staging_->bytes()});
      if (network != nullptr) network->send(bucket, staging_->data());
    }
    figures.extra_bytes = staging_->bytes() + whole_->scratch_bytes();
    return;
  }
  const std::vector<weights::PlacedTensor> own = placed();
  if (slot) {
    // Nothing is overwritten, so nothing has to be waited for between requests, and one does.
    weights::Bucket all;
    for (const weights::PlacedTensor& tensor : own) all.entries.push_back({tensor.info, tensor.offset});
    slot->send(all, {arena_->handle(), 0, arena_->bytes()});
  }
  if (network == nullptr) return;
  std::vector<tensor::TensorView> views;
  for (const weights::PlacedTensor& tensor : own) views.push_back({tensor.info, arena_->data() + tensor.offset});
  std::span<const tensor::TensorView> left = views;
  network_staging_.resize(largest(buckets));
  for (const weights::Bucket& bucket : buckets) {
    weights::pack_bucket(bucket, left, network_staging_.data());
    network->send(bucket, network_staging_.data());
  }
  figures.extra_bytes = network_staging_.size();
}

std::vector<PartSum> TrainerRank::checksums() const {
  const arch::ArenaLayout& layout = decoder_->layout();
  std::vector<PartSum> sums;
  for (const arch::ArenaEntry& entry : layout.entries) sums.push_back({entry.parameter.full.name, entry.shard.copy, 0});
  if (on_gpu()) {
    gpu::synchronize();  // LibTorch's streams have written the weights
    const std::vector<uint64_t> values = channels::part_checksums(layout, arena_->data());
    for (size_t i = 0; i < sums.size(); ++i) sums[i].sum = values[i];
    return sums;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const arch::ArenaEntry& entry = layout.entries[i];
    const arch::Shard& shard = entry.shard;
    sums[i].sum =
        weights::part_checksum(entry.parameter.full, shard.dim, shard.begin, shard.end, arena_->data() + entry.offset);
  }
  return sums;
}

}  // namespace vime::trainer
