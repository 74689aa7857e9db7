// Where the weights of all ranks of a replica lie, for those who read them there: the workers of engines, and ranks
// that put whole tensors together.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "placement/placement.hpp"
#include "trainer/layout_groups.hpp"
#include "weights/arena.hpp"
#include "weights/shared_place.hpp"

namespace vime::trainer {

class ReplicaArenas {
 public:
  // own: this rank's arena, whose first `bytes` are the weights; it outlives this. On GPUs the others' arenas are
  // opened here. Collective over the world.
  ReplicaArenas(const LayoutGroups& groups, const placement::Plan& plan, int rank, bool on_gpu,
                const weights::Arena& own, uint64_t bytes);

  // Whether every rank's device reads the weights of all ranks of its replica. The same on all ranks of the world, so
  // that the ranks of a slot, which may be of several replicas, do the same.
  bool readable() const { return readable_; }
  const weights::ReplicaPlaces& places() const { return places_; }
  // Of a readable replica on GPUs, as this rank's GPU reads them.
  const weights::OfRanks<const std::byte*>& data() const { return data_; }

 private:
  void open(const weights::Arena& own);

  bool readable_ = false;
  weights::ReplicaPlaces places_;
  weights::OfRanks<const std::byte*> data_;
  std::vector<std::unique_ptr<weights::Mapping>> mappings_;
};

}  // namespace vime::trainer
