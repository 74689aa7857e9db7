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
#include "weights/engine_client.hpp"
#include "weights/session.hpp"

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
  uint64_t buffer_bytes = uint64_t{512} << 20;
  uint64_t chunk_bytes = uint64_t{1} << 30;  // of messages straight from an arena
  milliseconds timeout{60'000};
};

// What one push took; seconds.
struct PushTimes {
  double prepare_s = 0;
  double pause_s = 0;   // from the call that pauses the engine to the answer of the one that resumes it
  double update_s = 0;  // of that, bringing the weights over
  std::string error;    // "" = good
};

class PushingRanks {
 public:
  explicit PushingRanks(RanksOptions options);
  ~PushingRanks();

  void new_weights(uint64_t seed);
  // Into the one engine, whose worker i is on the device of rank i (ipc, shm) or on one of its own.
  PushTimes push(weights::EngineClient& engine, int workers, int64_t version, bool init_needed);
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
  void send(Rank& rank, weights::EngineClient& engine, int workers, int64_t version, bool init_needed,
            PushTimes& times);

  RanksOptions options_;
  std::unique_ptr<RankMeeting> meeting_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace vime::bench
