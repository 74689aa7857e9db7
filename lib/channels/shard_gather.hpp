// A gather through NCCL, for GPUs that do not read each other's memory: the tensor-parallel ranks exchange the stretch
// of their arenas that a bucket needs, one kernel launch puts the shards together, and the stages exchange their
// tensors. Nothing is packed before it is sent, and a bucket's exchange runs beside the putting together of the one
// before. Collective over the ranks of the replica, which all go through the same buckets in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "arch/parameters.hpp"
#include "channels/bucket_gather.hpp"
#include "channels/bucket_shards.hpp"
#include "gpu/communicator.hpp"
#include "gpu/copies.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/streams.hpp"
#include "weights/bucket.hpp"

namespace vime::channels {

struct GatherOptions {
  std::vector<std::vector<arch::ArenaLayout>> layouts;  // [stage][tensor-parallel rank]
  int stage = 0;
  int tp_rank = 0;
  gpu::Communicator* tp = nullptr;  // of this stage's tensor-parallel ranks, in their order; null where there is one
  gpu::Communicator* stages =
      nullptr;                       // of the stages, in their order; likewise, but not both. They outlive the gather
  const std::byte* arena = nullptr;  // this rank's weights
  std::vector<weights::Bucket> buckets;  // consecutive tensors in checkpoint order
};

class ShardGather final : public BucketGather {
 public:
  explicit ShardGather(GatherOptions options);

  const std::vector<weights::Bucket>& buckets() const override { return options_.buckets; }
  void begin(std::size_t number, std::byte* place) override;
  void wait(std::size_t number) override;
  uint64_t scratch_bytes() const override { return 2 * (scratch_[0] ? scratch_[0]->bytes() : 0); }

 private:
  using Part = BucketShards::Part;
  using Range = BucketShards::Range;
  struct Shares {
    std::vector<std::vector<Part>> parts;  // [tensor-parallel rank]
    std::vector<Range> ranges;             // likewise: of its arena, that holds the rank's parts
    std::vector<uint64_t> places;          // likewise: of the range in the scratch
    std::vector<Range> tensors;            // [stage]: of the bucket's bytes
    uint64_t scratch_bytes = 0;
  };
  Shares shares_of(const weights::Bucket& bucket) const;
  void exchange_shards(const Shares& shares, std::byte* scratch);
  void exchange_stages(const Shares& shares, std::byte* place);
  gpu::Copies& placing(std::size_t number, std::byte* place, const std::byte* scratch);
  gpu::Communicator* any_group() const { return options_.tp != nullptr ? options_.tp : options_.stages; }

  GatherOptions options_;
  BucketShards shards_;
  std::vector<Shares> shares_;  // of the buckets
  std::unique_ptr<gpu::DeviceMemory> scratch_[2];
  std::map<std::pair<std::size_t, std::byte*>, std::unique_ptr<gpu::Copies>> placings_;
  gpu::OwnedStream links_{gpu::Priority::first}, copies_;
  gpu::Event arrived_[2], placed_[2], ready_[2];  // of buckets with even and odd numbers
};

}  // namespace vime::channels
