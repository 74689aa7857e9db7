// Brings buckets of whole tensors together on this rank's GPU, where each rank of a replica has shards of them. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weights/bucket.hpp"

namespace vime::channels {

class BucketGather {
 public:
  virtual ~BucketGather() = default;

  virtual const std::vector<weights::Bucket>& buckets() const = 0;
  // Begins to fill `place` with bucket `number`, each tensor at its offset. What wrote the ranks' arenas, and what read
  // `place` before, is done. At most two buckets are under way.
  virtual void begin(std::size_t number, std::byte* place) = 0;
  // Blocks until the bucket begun last, or the one before it, is there.
  virtual void wait(std::size_t number) = 0;
  virtual uint64_t scratch_bytes() const = 0;
};

}  // namespace vime::channels
