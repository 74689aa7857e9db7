// What runs in a worker process: it owns a shard of the weights, a part of the KV cache and a link to the other
// workers, and serves the messages of the engine's process until the socket closes. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "channels/shard_store.hpp"
#include "executor/forward.hpp"
#include "executor/frames.hpp"
#include "executor/start_workers.hpp"
#include "executor/weight_memory.hpp"
#include "model/decoder.hpp"
#include "model/rank_group.hpp"
#include "weights/receiver.hpp"

namespace vime::executor {

class Worker {
 public:
  // `token`: what the workers of this engine tell each other.
  Worker(ExecutorOptions options, arch::ModelConfig config, int index, std::string token);

  // Returns when the other end of the socket has gone.
  void serve(int socket);

 private:
  Frame answer(const Frame& request);
  Json control(const Json& request);
  std::vector<engine::Sampled> step(const engine::Batch& batch);
  Json meet();
  Json set_up(const Json& request);
  void make_link(const Json& request);
  std::unique_ptr<Forward> make_forward();
  void make_store();
  void update(const Json& update_info);
  void finish_update() const;
  void wake(const Json& request);
  Json checksums();

  bool on_gpu() const { return options_.device == "cuda"; }
  int size() const { return static_cast<int>(options_.device_uuids.size()); }

  ExecutorOptions options_;
  arch::ModelConfig config_;
  int index_;
  std::string token_;
  std::unique_ptr<model::MeetingPoint> meeting_;  // worker 0, until the others have come
  torch::Device device_ = torch::kCPU;
  uint64_t free_before_ = 0;  // of the GPU's memory, before this worker took any
  std::unique_ptr<WeightMemory> arena_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<Forward> forward_;
  std::unique_ptr<channels::ShardStore> store_;  // fills the arena
  weights::Receiver receiver_;
  int64_t steps_ = 0;        // since they were last asked for
  double step_seconds_ = 0;  // in the forward pass and its draws
};

// The worker process from fork to exit; never returns.
[[noreturn]] void worker_main(const ExecutorOptions& options, const arch::ModelConfig& config, int index,
                              const std::string& token, int socket, int parent);

}  // namespace vime::executor
