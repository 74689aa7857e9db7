// What a trainer rank on a GPU does for a push, from its own arena or from staging that it gathers whole tensors into.
// One thread; collective over the ranks of a replica where its gather is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "channels/bucket_gather.hpp"
#include "channels/device_arena.hpp"
#include "weights/network_push.hpp"
#include "weights/slot_push.hpp"

namespace vime::channels {

// Every tensor lies whole in the arena: the engine of the slot reads them there, all in one request, and the network
// source sends `messages` (empty without one) as they lie. `tensors`: all, in the arena's order. What wrote the arena
// has been done, and nothing writes it before the push has been finished.
void send_arena(const weights::Arena& arena, const std::vector<weights::PlacedTensor>& tensors,
                std::vector<weights::ArenaChunk> messages, std::optional<weights::SlotPush>& slot,
                weights::NetworkPush* network);

// Buckets of whole tensors in two stagings by turns: while the engine reads one, the next bucket comes into the other.
class StagedPush {
 public:
  explicit StagedPush(std::unique_ptr<BucketGather> gather);

  // Gathers the first two buckets. It may come before the engines are paused, once the weights are what they will be;
  // send() does it otherwise.
  void prepare();
  void send(std::optional<weights::SlotPush>& slot, weights::NetworkPush* network);
  uint64_t extra_bytes() const { return 2 * staging_[0]->bytes() + gather_->scratch_bytes(); }

 private:
  std::unique_ptr<BucketGather> gather_;
  std::unique_ptr<DeviceArena> staging_[2];
  bool prepared_ = false;
};

}  // namespace vime::channels
