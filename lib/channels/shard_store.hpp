// A worker's part of the weights as a push fills it: whole tensors come in, the worker's shards stay. In the host's
// memory or, with one kernel launch for a bucket of any number of tensors, in a GPU's. The arena is somebody else's and
// outlives the store. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "arch/parameters.hpp"
#include "gpu/copies.hpp"
#include "gpu/streams.hpp"
#include "weights/bucket.hpp"

namespace vime::channels {

class ShardStore {
 public:
  ShardStore(arch::ArenaLayout layout, std::byte* arena, bool tied_embeddings);
  virtual ~ShardStore() = default;

  void start();  // an update begins
  // The bucket's tensors, each at its offset from `base`. A GPU's copies may still be under way when this returns:
  // wait() tells when nothing reads `base` any more. Error{refused} for a tensor that the model does not have, or has
  // in another shape.
  virtual void take(const weights::Bucket& bucket, const std::byte* base) = 0;
  virtual void wait() = 0;
  // Parameters that did not come since start().
  std::vector<std::string> missing() const;
  // weights::part_checksum of every entry of the layout.
  virtual std::vector<uint64_t> checksums() = 0;

 protected:
  // Which of the layout's entries the bucket's tensors are; -1 where a tensor is left out: some checkpoints repeat the
  // embeddings as a head.
  std::vector<int64_t> find(const weights::Bucket& bucket) const;
  void mark(const std::vector<int64_t>& found);
  const arch::ArenaLayout& layout() const { return layout_; }
  std::byte* arena() const { return arena_; }

 private:
  arch::ArenaLayout layout_;
  std::byte* arena_;
  bool tied_embeddings_;
  std::unordered_map<std::string, int64_t> entries_;  // by name
  std::vector<bool> arrived_;                         // by entry
};

// convert: a whole tensor of another dtype than the parameter's, as the parameter's; the bytes are used at once.
using Convert = std::function<const std::byte*(const tensor::TensorView& view, tensor::DType to)>;

class HostShardStore final : public ShardStore {
 public:
  HostShardStore(arch::ArenaLayout layout, std::byte* arena, bool tied_embeddings, Convert convert)
      : ShardStore(std::move(layout), arena, tied_embeddings), convert_(std::move(convert)) {}
  void take(const weights::Bucket& bucket, const std::byte* base) override;
  void wait() override {}
  std::vector<uint64_t> checksums() override;

 private:
  Convert convert_;
};

class DeviceShardStore final : public ShardStore {
 public:
  using ShardStore::ShardStore;
  void take(const weights::Bucket& bucket, const std::byte* base) override;
  void wait() override;
  std::vector<uint64_t> checksums() override;
  gpu::Stream stream() const { return stream_.get(); }  // that the copies run on

 private:
  // A bucket's copies with their table on the GPU.
  struct Plan {
    std::vector<int64_t> found;
    std::unique_ptr<gpu::Copies> copies;
  };
  Plan make_plan(const weights::Bucket& bucket, const std::byte* base) const;

  gpu::OwnedStream stream_;
  std::map<std::pair<std::string, const std::byte*>, Plan> plans_;  // kept for the next push of the same from the same
  std::vector<Plan> passing_;                                       // of buckets without a key, until they are done
};

}  // namespace vime::channels
