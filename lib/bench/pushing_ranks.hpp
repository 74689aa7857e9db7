// Trainer ranks that have weights and nothing else: threads of one process, each with a device, a shard of a model and
// what a push needs. They go through pushes together, as ranks in processes of their own do. Every call blocks until
// all ranks are done; waits for the engine have options.timeout, those for other ranks twice as much, and when one rank
// fails the others do not wait for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "bench/model_lists.hpp"
#include "weights/bucket.hpp"
#include "weights/engine_client.hpp"
#include "weights/session.hpp"
#include "weights/shared_place.hpp"

namespace vime::bench {

class RankMeeting;

enum class Transport { ipc, nccl, shm, tcp };
Transport parse_transport(const std::string& name);
bool on_gpus(Transport transport);       // the weights lie in GPUs' memory
bool over_network(Transport transport);  // the engine is on devices of its own

struct RanksOptions {
  ModelList model;
  Transport transport = Transport::ipc;
  std::vector<std::string> uuids;  // one rank each: their tensor-parallel size
  int engine_workers = 1;          // of every engine
  // Colocated engines are shown whole tensors that all ranks bring together, as vLLM is, not the ranks' shards.
  bool whole_tensors = false;
  bool over_nccl = false;  // whole tensors come together through NCCL even where GPUs read each other's memory
  uint64_t buffer_bytes = uint64_t{512} << 20;
  uint64_t chunk_bytes = uint64_t{1} << 30;  // of messages straight from an arena
  milliseconds timeout{60'000};
};

// What one push took; seconds.
struct PushTimes {
  double prepare_s = 0;
  double pause_s = 0;   // from the call that pauses the engines to the answer of the last one that resumes them
  double update_s = 0;  // of that, bringing the weights over
  std::string error;    // "" = good
};

class PushingRanks {
 public:
  explicit PushingRanks(RanksOptions options);
  ~PushingRanks();

  void new_weights(uint64_t seed);
  // Colocated engines (ipc, shm) have the ranks' devices one engine after the other; over the network it is one, with
  // devices of its own.
  PushTimes push(const std::vector<weights::EngineClient*>& engines, int64_t version, bool init_needed);
  std::map<std::string, uint64_t> checksums();
  std::vector<std::string> handles() const;  // of the ranks' arenas
  uint64_t extra_bytes() const;              // that the ranks took for pushes, so far
  uint64_t arena_bytes() const;              // of one rank
  // Plain broadcasts of the first rank's arena to the workers of another process; the quickest of them.
  double quickest_broadcast_ms(const std::string& unique_id, int workers, uint64_t bytes, int repeat);

 private:
  struct Rank;
  template <typename Step>
  void on_all(const Step& step);
  void send(Rank& rank, weights::EngineClient& engine, int64_t version, bool init_needed);

  void make_staged(Rank& rank, bool from_peers, const std::string& unique_id);
  int ranks_per_slot() const { return static_cast<int>(ranks_.size() / slots_.size()); }
  weights::ReplicaPlaces replica_of(const Rank& rank) const;

  RanksOptions options_;
  weights::Bucket whole_bucket_;                     // all tensors
  std::unique_ptr<RankMeeting> meeting_;             // of all ranks
  std::vector<std::unique_ptr<RankMeeting>> slots_;  // of the ranks of each colocated engine
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace vime::bench
