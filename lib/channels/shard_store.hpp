// A worker's part of the weights as a push fills it: whole tensors come in, or the trainer ranks' shards are there to
// be read, and the worker's shards stay. In the host's memory or, with one kernel launch for a bucket of any number of
// tensors, in a GPU's. The arena is somebody else's and outlives the store. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "arch/parameters.hpp"
#include "channels/shard_sources.hpp"
#include "gpu/copies.hpp"
#include "gpu/streams.hpp"
#include "weights/bucket.hpp"
#include "weights/receiver.hpp"

namespace vime::channels {

// The layouts of a trainer's ranks that hold this model in that dtype: [stage][tensor-parallel rank].
using TrainerLayouts =
    std::function<std::vector<std::vector<arch::ArenaLayout>>(tensor::DType dtype, int tp_size, int stages)>;

class ShardStore {
 public:
  ShardStore(arch::ArenaLayout layout, std::byte* arena, bool tied_embeddings, TrainerLayouts trainer_layouts);
  virtual ~ShardStore() = default;

  void start();  // an update begins
  // The bucket's tensors, each at its offset from `base`. A GPU's copies may still be under way when this returns:
  // wait() tells when nothing reads `base` any more. Error{refused} for a tensor that the model does not have, or has
  // in another shape.
  virtual void take(const weights::Bucket& bucket, const std::byte* base) = 0;
  // The bucket's tensors as the shards of a replica's ranks. Error{refused} besides for arenas of another layout.
  virtual void take_shards(const weights::Bucket& bucket, const weights::ReplicaMemory& replica) = 0;
  virtual void wait() = 0;
  // Parameters that did not come since start().
  std::vector<std::string> missing() const;
  // weights::part_checksum of every entry of the layout.
  virtual std::vector<uint64_t> checksums() = 0;

 protected:
  // A part of one of the layout's entries where a trainer rank holds it.
  struct Piece {
    int64_t entry = 0;
    const arch::Shard* shard = nullptr;
    const std::byte* bytes = nullptr;
  };
  // Which of the layout's entries the bucket's tensors are; -1 where a tensor is left out: some checkpoints repeat the
  // embeddings as a head.
  std::vector<int64_t> find(const weights::Bucket& bucket) const;
  void mark(const std::vector<int64_t>& found);
  // Where the bucket's tensors are, which are all of one dtype, in arenas of the right size. Lives as long as the
  // store.
  const ShardSources& sources_in(const weights::Bucket& bucket, const weights::ReplicaMemory& replica);
  // Of the entries that find() gave.
  std::vector<Piece> pieces(const ShardSources& sources, const std::vector<int64_t>& found,
                            const weights::ReplicaMemory& replica) const;
  const arch::ArenaLayout& layout() const { return layout_; }
  std::byte* arena() const { return arena_; }

 private:
  arch::ArenaLayout layout_;
  std::byte* arena_;
  bool tied_embeddings_;
  TrainerLayouts trainer_layouts_;
  std::unordered_map<std::string, int64_t> entries_;  // by name
  std::vector<bool> arrived_;                         // by entry
  // By dtype, tensor-parallel size, stages, and the nearest rank.
  std::map<std::tuple<tensor::DType, int, int, RankPlace>, std::unique_ptr<ShardSources>> sources_;
};

// convert: a tensor of another dtype than the parameter's, as the parameter's; the bytes are used at once.
using Convert = std::function<const std::byte*(const tensor::TensorView& view, tensor::DType to)>;

class HostShardStore final : public ShardStore {
 public:
  HostShardStore(arch::ArenaLayout layout, std::byte* arena, bool tied_embeddings, TrainerLayouts trainer_layouts,
                 Convert convert)
      : ShardStore(std::move(layout), arena, tied_embeddings, std::move(trainer_layouts)),
        convert_(std::move(convert)) {}
  void take(const weights::Bucket& bucket, const std::byte* base) override;
  void take_shards(const weights::Bucket& bucket, const weights::ReplicaMemory& replica) override;
  void wait() override {}
  std::vector<uint64_t> checksums() override;

 private:
  Convert convert_;
};

class DeviceShardStore final : public ShardStore {
 public:
  using ShardStore::ShardStore;
  void take(const weights::Bucket& bucket, const std::byte* base) override;
  void take_shards(const weights::Bucket& bucket, const weights::ReplicaMemory& replica) override;
  void wait() override;
  std::vector<uint64_t> checksums() override;
  gpu::Stream stream() const { return stream_.get(); }  // that the copies run on

 private:
  // A bucket's copies with their table on the GPU.
  struct Plan {
    std::vector<int64_t> found;
    std::unique_ptr<gpu::Copies> copies;
  };
  using Bases = std::vector<const std::byte*>;
  // The copies of a bucket's tensors, which are the layout's entries `found`.
  using MakeCopies = std::function<std::vector<gpu::Copy>(const std::vector<int64_t>& found)>;
  // Where shards are read by `sources`; null: whole tensors.
  void run(const weights::Bucket& bucket, const ShardSources* sources, Bases bases, const MakeCopies& make);

  gpu::OwnedStream stream_;
  // By the bucket's key, the sources and the bases: kept for the next push of the same from the same.
  std::map<std::tuple<std::string, const ShardSources*, Bases>, Plan> plans_;
  std::vector<Plan> passing_;  // of buckets without a key, until they are done
};

}  // namespace vime::channels
