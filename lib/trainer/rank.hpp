// One trainer rank of a layout: its part of the weights (in memory that colocated engine workers can read), of the
// optimizer's state, its process groups, and the operations that the driver commands in lock step. One thread; every
// operation is collective over all ranks unless it says otherwise.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algo/policy_loss.hpp"
#include "arch/model_config.hpp"
#include "arch/recompute.hpp"
#include "channels/bucket_gather.hpp"
#include "channels/device_push.hpp"
#include "gpu/communicator.hpp"
#include "http/client.hpp"
#include "model/decoder.hpp"
#include "placement/placement.hpp"
#include "rollout/step_probe.hpp"
#include "spec/placement_request.hpp"
#include "trainer/layout_groups.hpp"
#include "trainer/optimizer.hpp"
#include "trainer/policy_step.hpp"
#include "trainer/rank_slot_group.hpp"
#include "trainer/replica_arenas.hpp"
#include "trainer/whole_tensors.hpp"
#include "weights/arena.hpp"
#include "weights/network_push.hpp"
#include "weights/session.hpp"
#include "weights/slot_push.hpp"

namespace vime::trainer {

struct RankOptions {
  std::string run_id;
  std::string token;
  int rank = 0;
  placement::Plan plan;
  std::vector<spec::Route> routes;           // by engine: how its weights travel
  bool vllm_engines = false;                 // buckets are cut as vLLM cuts them
  std::string device = "cpu";                // or "cuda": the plan says which
  tensor::DType dtype = tensor::DType::f32;  // of weights and arithmetic; gradients and optimizer state are float32
  arch::Recompute recompute = arch::Recompute::none;
  int64_t rows_per_product = 0;  // Decoder::set_rows_per_product
  arch::ModelConfig config;
  std::string model_dir;       // weights are read from here; empty: random weights from `seed`
  std::string checkpoint_dir;  // a checkpoint that training goes on from; empty: from the start
  bool with_reference = false;
  std::string reference_dir;  // of the reference model's weights; empty: those that training begins with
  uint64_t seed = 0;
  OptimizerOptions optimizer;
  PolicyOptions policy;
  int64_t max_tokens_per_gpu = 4096;
  int64_t global_batch_size = 0;
  uint64_t buffer_bytes = 0;
  std::chrono::milliseconds transfer_timeout{0};  // of pushes
  std::chrono::milliseconds meeting_timeout{0};   // how long ranks wait for each other
  std::string host = "127.0.0.1";  // where this rank listens: rank 0's meeting point and network source of pushes
};

// This rank's share of one optimizer step's figures; the driver adds the ranks' shares up in rank order. What all ranks
// of a replica know is the share of one of them, the first of the last stage.
struct StepFigures {
  PolicyFigures policy;
  double grad_norm = 0.0;  // the same on every rank
  bool applied = false;
  double lr = 0.0;  // likewise
  int64_t tokens = 0;
};

struct PushTarget {
  weights::EngineAddress address;
  bool init_needed = false;
};

struct PushFigures {
  std::vector<weights::EngineResult> results;  // of the engines that this rank led
  double prepare_s = 0.0;                      // of the prepare_push() before it: outside of any engine's pause
  uint64_t extra_bytes = 0;                    // memory that the push took
};

// Content checksum of this rank's part of a parameter. The parts with the same copy number add up to the whole
// parameter's sum, over the ranks of a replica.
struct PartSum {
  std::string name;
  int copy = 0;  // arch::Shard::copy
  uint64_t sum = 0;
};

class TrainerRank {
 public:
  // Not collective: the weights are there when it returns.
  explicit TrainerRank(RankOptions options);
  virtual ~TrainerRank();

  // Joins the groups, the world at rank 0's meeting point, and reads the optimizer's state of a checkpoint.
  void setup(const std::string& meeting_host, uint16_t meeting_port);
  uint16_t meeting_port() const;  // of rank 0; 0 on the others. Not collective.
  const placement::TrainerRank& place() const { return options_.plan.ranks[static_cast<size_t>(options_.rank)]; }

  // probe: what is asked of the step, of a batch of one optimizer step only; without one the answer is empty.
  std::pair<std::vector<StepFigures>, rollout::StepAnswer> train(const std::string& batch_path,
                                                                 const rollout::StepProbe* probe = nullptr);
  // Log-probs (natural) of the batch's response tokens under the present weights, without a temperature: [response
  // tokens], NaN where other ranks know them. Every data-parallel rank has at least one sample.
  std::vector<double> logprobs(const std::string& batch_path);
  // Does what can be done before the engines are paused, for the push that comes next; the weights do not change
  // between the two. Seconds that it took: 0 where engines read this rank's arena alone, and, where tensors have to be
  // brought together, on the CPU: there the first bucket has nowhere to be but in the staging that the push goes
  // through anyway. May be left out.
  double prepare_push();
  // targets: every engine, by id. A failed engine is in the results, not an exception.
  virtual PushFigures push(int64_t version, const std::vector<PushTarget>& targets);
  std::vector<PartSum> checksums() const;  // of all parameters that this rank holds. Not collective.
  std::string replica() const;             // "dp 0, cp 1": the ranks that hold the whole model once. Not collective.
  // For a rank that cannot go on after an exception: the others' waits end at once. Not collective.
  void leave(const std::string& reason) { groups_.leave(reason); }
  bool left_by_others() const { return groups_.broken(); }
  // Writes the weights and their configuration into the folder: of a Hugging Face model, without a tokenizer. Rank 0
  // writes.
  void write_model(const std::string& folder);
  // Writes <dir>/model (a Hugging Face directory) and <dir>/trainer (optimizer state, checksums): whole tensors, so
  // that any layout can go on from them. Rank 0 writes.
  void save(const std::string& dir);
  uint64_t checkpoint_bytes() const;  // that save() will take on the disk, but for small files. Not collective.
  // Gives the device's memory of optimizer state and gradients, and what LibTorch keeps for itself, to whoever shares
  // the GPU; the weights stay, for pushes and engines. Then the way back. Between the two only
  // push(), logprobs(), checksums() and write_model() may be called. On the CPU nothing happens. Not collective.
  void offload();
  void onload();
  struct MemoryFigures {
    uint64_t arena_bytes = 0;  // of weights, the reference model's too
    uint64_t used_bytes = 0;   // by tensors outside of arenas
    uint64_t peak_bytes = 0;   // the most that tensors used since the last call, outside of arenas
  };
  MemoryFigures memory();  // zeros but for arenas on the CPU. Not collective.

 protected:
  // The steps in which a layout can go wrong. Tests override them with wrong rules.
  virtual model::CollectivesPtr tensor_parallel(std::shared_ptr<model::RankGroup> tp) const;
  virtual std::unique_ptr<PolicyStep> make_policy_step() const;
  // Sums gradients over the ranks of this replica that hold the same parameters.
  virtual void complete_gradients();
  virtual void sum_tied_embeddings();
  virtual std::vector<tensor::TensorInfo> pushed_tensors() const;  // in checkpoint order
  virtual placement::Slot slot_of_push(const placement::Slot& slot) const;
  // Collective over the world: the ranks of the slot that holds this rank, or of none.
  virtual std::shared_ptr<model::RankGroup> join_slot(const std::optional<placement::Slot>& slot);

  const RankOptions& options() const { return options_; }
  const LayoutGroups& groups() const { return groups_; }
  model::Decoder& decoder() { return *decoder_; }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  class PlannedRanks;

  std::unique_ptr<weights::Arena> make_arena(uint64_t bytes) const;  // that engine workers can read
  std::unique_ptr<model::Decoder> make_decoder(std::byte* arena) const;
  arch::ArenaLayout state_layout() const;  // of the optimizer's state in checkpoints
  std::vector<std::byte> in_state_layout(
      const torch::Tensor& flat) const;  // a flat buffer of the optimizer, on the host
  void load_weights();
  void load_optimizer();
  void check_checkpoint() const;
  rollout::ScheduleOptions schedule_options(int64_t samples) const;
  StepFigures train_step(const BatchView& view, const rollout::StepSchedule& step, const FixedLogprobs& fixed);
  std::vector<rollout::ShardFigures> figures_of_step(const rollout::StepProbe& probe);
  void round_weights();                                                                     // as a probe asks
  bool writes_checkpoints() const { return place().dp_rank == 0 && place().cp_rank == 0; }  // rank 0 and its replica
  // Whether it and this rank together hold the model once, with others.
  bool is_of_replica(const placement::TrainerRank& rank) const {
    return rank.dp_rank == place().dp_rank && rank.cp_rank == place().cp_rank;
  }
  bool has_slot_reader() const;
  bool sends_over_network() const;
  bool shows_shards() const;
  bool shows_wholes() const;
  bool brings_together();
  bool arenas_are_read();
  void await_weights();
  bool on_gpu() const { return options_.device == "cuda"; }
  std::vector<weights::PlacedTensor> placed() const;
  std::unique_ptr<weights::NetworkPush> make_network_push() const;
  std::vector<weights::ArenaChunk> arena_messages() const;
  bool goes_through_staging();
  channels::StagedPush* staged_push();
  std::vector<weights::Bucket> staged_buckets() const;
  std::vector<std::vector<arch::ArenaLayout>> replica_layouts() const;
  std::unique_ptr<channels::BucketGather> peer_gather() const;
  std::unique_ptr<channels::BucketGather> group_gather();
  void send_buckets(std::optional<weights::SlotPush>& slot, weights::NetworkPush* network, PushFigures& figures);
  void send_from_gpu(std::optional<weights::SlotPush>& slot, weights::NetworkPush* network, PushFigures& figures);
  std::map<std::string, uint64_t> save_weights(const fs::path& folder);
  std::map<std::string, uint64_t> save_state(const std::string& dir);

  RankOptions options_;
  torch::Device device_ = torch::kCPU;
  std::shared_ptr<PlannedRanks> tp_;
  std::unique_ptr<weights::Arena> arena_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<weights::Arena> reference_arena_;
  std::unique_ptr<model::Decoder> reference_;           // without one: null
  std::unique_ptr<model::MeetingPoint> meeting_point_;  // of rank 0
  LayoutGroups groups_;
  std::unique_ptr<PolicyStep> policy_;
  std::unique_ptr<WholeTensors> whole_;
  std::unique_ptr<WholeTensors> whole_state_;  // of the optimizer's float32 state
  std::unique_ptr<RankSlotGroup> slot_;        // of the slot that holds this rank; else null
  std::unique_ptr<weights::Arena> staging_;    // a bucket of whole tensors, where the arena lacks some
  http::Client client_;
  weights::SentManifests sent_;  // to the engine of the slot
  std::unique_ptr<weights::NetworkPush> network_push_;
  std::unique_ptr<ReplicaArenas> arenas_;  // where this rank's arena lacks some tensors, and pushes do not go by folder
  std::unique_ptr<gpu::Communicator> push_tp_, push_stages_;  // of a gather through NCCL
  std::unique_ptr<channels::StagedPush> staged_push_;
  bool weights_are_there_ = false;  // await_weights() was called since they changed
  double prepare_s_ = 0.0;
  std::optional<bool> through_staging_;  // once it is known: the arena's layout does not change
  std::vector<std::byte> network_staging_;
};

}  // namespace vime::trainer
