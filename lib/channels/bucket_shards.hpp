// Which rank of a replica has what of a bucket's whole tensors, for whoever gathers them. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "arch/parameters.hpp"
#include "weights/bucket.hpp"

namespace vime::channels {

class BucketShards {
 public:
  // An owned shard of one of the bucket's tensors.
  struct Part {
    const arch::ArenaEntry* entry = nullptr;
    uint64_t offset = 0;  // of the whole tensor, in the bucket
  };
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t bytes() const { return end - begin; }
  };

  // layouts: [stage][tensor-parallel rank], of the ranks' arenas.
  explicit BucketShards(std::vector<std::vector<arch::ArenaLayout>> layouts);
  BucketShards(const BucketShards&) = delete;  // parts point into it
  BucketShards& operator=(const BucketShards&) = delete;

  std::size_t stages() const { return layouts_.size(); }
  std::size_t tp_size() const { return layouts_[0].size(); }
  // What a rank owns, in the bucket's order. Lives as long as this.
  std::vector<Part> parts_of(const weights::Bucket& bucket, std::size_t stage, std::size_t tp_rank) const;
  // Of the bucket's bytes, where the stage's tensors lie: together, since checkpoint order is the order of the stages.
  // Empty where it has none.
  Range stage_range(const weights::Bucket& bucket, std::size_t stage) const;

 private:
  using Owned = std::unordered_map<std::string, const arch::ArenaEntry*>;  // by name
  std::vector<std::vector<arch::ArenaLayout>> layouts_;
  std::vector<std::vector<Owned>> owned_;  // likewise
};

}  // namespace vime::channels
