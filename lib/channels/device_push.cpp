#include "channels/device_push.hpp"

#include <algorithm>
#include <utility>

namespace vime::channels {

void send_arena(const weights::Arena& arena, const std::vector<weights::PlacedTensor>& tensors,
                std::vector<weights::ArenaChunk> messages, std::optional<weights::SlotPush>& slot,
                weights::NetworkPush* network) {
  if (slot) {
    weights::Bucket all;
    all.entries.reserve(tensors.size());
    for (const weights::PlacedTensor& tensor : tensors) all.entries.push_back({tensor.info, tensor.offset});
    slot->begin(all, {arena.handle(), 0, arena.bytes()});
  }
  if (network != nullptr) {
    std::vector<weights::Bucket> buckets;
    std::vector<uint64_t> begins;
    for (weights::ArenaChunk& chunk : messages) {
      buckets.push_back(std::move(chunk.bucket));
      begins.push_back(chunk.begin);
    }
    network->announce(buckets);
    for (std::size_t i = 0; i < buckets.size(); ++i) network->send(buckets[i], arena.data() + begins[i]);
  }
  if (slot) slot->complete();
}

StagedPush::StagedPush(std::unique_ptr<BucketGather> gather) : gather_(std::move(gather)) {
  uint64_t largest = 1;
  for (const weights::Bucket& bucket : gather_->buckets()) largest = std::max(largest, bucket.bytes);
  for (auto& staging : staging_) staging = std::make_unique<DeviceArena>(largest);
}

void StagedPush::prepare() {
  const std::size_t count = std::min<std::size_t>(2, gather_->buckets().size());
  for (std::size_t i = 0; i < count; ++i) gather_->begin(i, staging_[i]->data());
  for (std::size_t i = 0; i < count; ++i) gather_->wait(i);
  prepared_ = true;
}

void StagedPush::send(std::optional<weights::SlotPush>& slot, weights::NetworkPush* network) {
  const std::vector<weights::Bucket>& buckets = gather_->buckets();
  if (!prepared_) prepare();
  prepared_ = false;
  if (network != nullptr) network->announce(buckets);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const DeviceArena& staging = *staging_[i % 2];
    if (i >= 2) gather_->wait(i);
    if (slot) slot->begin(buckets[i], {staging.handle(), 0, staging.bytes()});
    if (network != nullptr) network->send(buckets[i], staging.data());
    // The other staging is free: its engine has answered, and the network's next message has gone out behind it.
    if (i >= 1 && i + 1 < buckets.size()) gather_->begin(i + 1, staging_[(i + 1) % 2]->data());
    if (slot) slot->complete();
  }
}

}  // namespace vime::channels
