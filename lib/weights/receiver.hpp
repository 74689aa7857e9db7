// The engine worker's end of a push: turns init_info and update_info into checkpoint tensors, whole or in the trainer
// ranks' shards.
//   shared memory   init_info {"backend"}; update_info = manifest + {"handles": {uuid: {"handle", "offset", "bytes"}}},
//         or, where the ranks have shards, {uuid: {"nearest": [stage, tensor-parallel rank], "shards": [[{"handle",
//         "offset", "bytes"}, ...], ...]}}, those of all ranks of the replica by stage and tensor-parallel rank; the
//         manifest's offsets are of no meaning then. The worker takes its own UUID's entry, ignores foreign ones, and
//         fails on a missing one. Mappings are opened once and kept until the next init. Backend "shm" (the host's
//         memory) is built in; an owner of GPUs adds "ipc".
//   a network       init_info {"backend", "rank_offset", "world_size", ...}; update_info = manifest.
//         The worker joins as rank rank_offset + worker; the bytes follow on that connection. Backend "tcp" is built in
//         ({"master_address", "master_port", "token"}; one message per update); an owner of GPUs adds "nccl".
// Manifests: manifest.hpp. One thread. receive() blocks until the bytes are there or the deadline has passed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "weights/arena.hpp"
#include "weights/manifest.hpp"
#include "weights/shared_place.hpp"

namespace vime::weights {

// Takes a bucket's tensors, each at its entry's offset from `base`.
using TakeBucket = std::function<void(const Bucket& bucket, const std::byte* base)>;

struct SharedMemory {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};
// The weights of a replica's ranks, each laid out as arch::replica_layouts has it.
struct ReplicaMemory {
  OfRanks<SharedMemory> ranks;
  RankPlace nearest;  // the one on the worker's own device
};
// Takes a bucket's tensors from the shards.
using TakeShards = std::function<void(const Bucket& bucket, const ReplicaMemory& replica)>;

// A worker's connection to the network source.
class NetworkReceiver {
 public:
  virtual ~NetworkReceiver() = default;
  // The messages of one update, in order.
  virtual void receive(const std::vector<Bucket>& buckets, const TakeBucket& take) = 0;
};
struct NetworkPlace {
  int rank = 0;
  int world_size = 0;
  std::chrono::milliseconds timeout{0};
};
using OpenNetwork = std::function<std::unique_ptr<NetworkReceiver>(const Json& init_info, const NetworkPlace& place)>;

class Receiver {
 public:
  // worker: index within the engine; uuid: of the worker's device.
  Receiver(int worker, std::string uuid, std::chrono::milliseconds timeout);

  void add_backend(const std::string& name, OpenMapping open) { shared_[name] = std::move(open); }
  void add_backend(const std::string& name, OpenNetwork open) { networks_[name] = std::move(open); }

  void init(const Json& init_info);  // may come again: the new channel replaces the old one
  // Calls `take` for every bucket of the update, in order, or `take_shards` once. The memory is valid until receive()
  // returns, or, with a network, until `take` does.
  void receive(const Json& update_info, const TakeBucket& take, const TakeShards& take_shards);

 private:
  NetworkPlace place_in(const Json& init_info) const;
  void receive_shared(const Json& update_info, const TakeBucket& take, const TakeShards& take_shards);
  SharedMemory open(const SharedPlace& place);

  int worker_;
  std::string uuid_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, OpenMapping> shared_;    // by backend
  std::map<std::string, OpenNetwork> networks_;  // likewise
  std::string backend_;
  KeptManifests manifests_;
  std::map<std::string, std::unique_ptr<Mapping>> mappings_;  // by handle
  std::unique_ptr<NetworkReceiver> network_;
};

}  // namespace vime::weights
