// A gather by one rank alone: its GPU reads the shards in the other ranks' memory, and each element moves once.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "channels/bucket_gather.hpp"
#include "channels/shard_sources.hpp"
#include "gpu/copies.hpp"
#include "gpu/streams.hpp"

namespace vime::channels {

struct PeerGatherOptions {
  OfRanks<arch::ArenaLayout> layouts;
  OfRanks<const std::byte*> arenas;  // where the calling thread's GPU reaches them
  RankPlace own;                     // this rank's place among them
  std::vector<weights::Bucket> buckets;
  milliseconds timeout{60'000};  // of a bucket
};

class PeerGather final : public BucketGather {
 public:
  explicit PeerGather(PeerGatherOptions options);

  const std::vector<weights::Bucket>& buckets() const override { return buckets_; }
  void begin(std::size_t number, std::byte* place) override;
  void wait(std::size_t number) override;  // Error{process_failed} when the GPU is not done within the timeout
  uint64_t scratch_bytes() const override { return 0; }

 private:
  gpu::Copies& copies(std::size_t number, std::byte* place);

  OfRanks<const std::byte*> arenas_;
  std::vector<weights::Bucket> buckets_;
  milliseconds timeout_;
  ShardSources sources_;
  std::map<std::pair<std::size_t, std::byte*>, std::unique_ptr<gpu::Copies>> copies_;
  gpu::OwnedStream stream_;
  gpu::Event there_[2];  // of buckets with even and odd numbers
};

}  // namespace vime::channels
