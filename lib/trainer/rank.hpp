// One trainer rank: its weights (in memory that colocated engine workers can read), optimizer and process groups, and
// the operations that the driver commands in lock step. One thread; every operation is collective over all ranks unless
// it says otherwise.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/policy_loss.hpp"
#include "arch/model_config.hpp"
#include "http/client.hpp"
#include "model/decoder.hpp"
#include "model/rank_group.hpp"
#include "placement/placement.hpp"
#include "trainer/optimizer.hpp"
#include "trainer/policy_step.hpp"
#include "weights/network_push.hpp"
#include "weights/session.hpp"
#include "weights/shared_arena.hpp"
#include "weights/slot_push.hpp"

namespace vime::trainer {

struct RankOptions {
  std::string run_id;
  std::string token;
  int rank = 0;
  placement::Plan plan;
  std::vector<bool> over_network;  // by engine: its weights travel over the network, colocated or not
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

// This rank's share of one optimizer step's figures; the driver adds the ranks' shares up in rank order.
struct StepFigures {
  algo::LossTerms terms;
  double entropy = 0.0;
  double logprob = 0.0;    // weighted mean of the recomputed old log-probs
  double grad_norm = 0.0;  // the same on every rank
  bool applied = false;
  double lr = 0.0;  // likewise
  int64_t tokens = 0;
  int64_t micro_batches = 0;
};

struct PushTarget {
  weights::EngineAddress address;
  bool init_needed = false;
};

struct PushFigures {
  std::vector<weights::EngineResult> results;  // of the engines that this rank led
  double prepare_s = 0.0;                      // work for the push outside of any engine's pause
  uint64_t extra_bytes = 0;                    // memory that the push took
};

class TrainerRank {
 public:
  explicit TrainerRank(RankOptions options);
  ~TrainerRank();

  // Joins the groups: the world at rank 0's meeting point, then every slot's group in slot order, on every rank alike.
  void setup(const std::string& meeting_host, uint16_t meeting_port);
  uint16_t meeting_port() const;  // of rank 0; 0 on the others

  std::vector<StepFigures> train(const std::string& batch_path);
  // targets: every engine, by id. A failed engine is in the results, not an exception.
  PushFigures push(int64_t version, const std::vector<PushTarget>& targets);
  // Content checksum of every parameter. Not collective.
  std::map<std::string, uint64_t> checksums() const;
  // Writes <dir>/model (a Hugging Face directory) and <dir>/trainer (optimizer state, checksums). Rank 0 alone.
  void save(const std::string& dir) const;
  uint64_t checkpoint_bytes() const;  // that save() will take on the disk, but for small files

 private:
  class RankSlotGroup;

  std::map<std::string, uint64_t> checkpoint_checksums() const;
  void load_weights();
  void load_checkpoint();
  // Of this rank's samples; the others' stay 0.
  std::vector<double> logprobs_of(const model::Decoder& decoder, const BatchView& view,
                                  const std::vector<rollout::StepSchedule>& steps) const;
  StepFigures train_step(const BatchView& view, const std::vector<rollout::MicroBatch>& mine,
                         const std::vector<rollout::MicroBatch>& all, const FixedLogprobs& fixed);

  RankOptions options_;
  std::unique_ptr<weights::SharedArena> arena_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<weights::SharedArena> reference_arena_;
  std::unique_ptr<model::Decoder> reference_;           // without one: null
  std::unique_ptr<model::MeetingPoint> meeting_point_;  // of rank 0
  std::shared_ptr<model::RankGroup> world_;
  std::map<int, std::unique_ptr<RankSlotGroup>> slot_groups_;  // of the slots that hold this rank, by engine
  http::Client client_;
  std::unique_ptr<weights::NetworkPush> network_push_;
  std::vector<std::byte> network_staging_;  // one bucket
};

}  // namespace vime::trainer
