#include "trainer/rank.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "algo/reduce.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "rollout/train_batch.hpp"
#include "weights/checksum.hpp"

namespace vime::trainer {
namespace {

constexpr auto kDType = tensor::DType::f32;
// Inside a checkpoint.
constexpr const char* kModelFolder = "model";
constexpr const char* kTrainerFolder = "trainer";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kChecksumFile = "checksums.json";

std::vector<weights::PlacedTensor> placed_tensors(const arch::ArenaLayout& layout) {
  std::vector<weights::PlacedTensor> tensors;
  for (const arch::ArenaEntry& entry : layout.entries) tensors.push_back({entry.parameter.full, entry.offset});
  return tensors;
}

}  // namespace

// The ranks of one slot: never the trainer's tensor-parallel group, whose members may be others.
class TrainerRank::RankSlotGroup final : public weights::SlotGroup {
 public:
  RankSlotGroup(placement::Slot slot, std::shared_ptr<model::RankGroup> group)
      : slot_(slot), group_(std::move(group)) {}
  const placement::Slot& slot() const { return slot_; }
  std::vector<std::string> gather(const std::string& mine) override { return group_->gather_strings(mine, 0); }
  void barrier() override { group_->barrier(); }

 private:
  placement::Slot slot_;
  std::shared_ptr<model::RankGroup> group_;  // the leader is its rank 0
};

TrainerRank::TrainerRank(RankOptions options) : options_(std::move(options)) {
  const arch::ArenaLayout layout = arch::arena_layout(options_.config, kDType, 0, 1);
  arena_ = std::make_unique<weights::SharedArena>(layout.total_bytes);
  decoder_ = std::make_unique<model::Decoder>(options_.config, kDType, model::single_rank(), arena_->data());
  load_weights();
  decoder_->require_grad(true);
  optimizer_ = std::make_unique<Optimizer>(*decoder_, options_.optimizer);
  if (!options_.checkpoint_dir.empty()) load_checkpoint();
  if (options_.rank == 0) meeting_point_ = std::make_unique<model::MeetingPoint>(options_.host);
  log::info("trainer", "rank " + std::to_string(options_.rank) + ": " + options_.config.architecture + ", " +
                           format_bytes(layout.total_bytes) + " of weights");
}

TrainerRank::~TrainerRank() = default;

// The weights that training begins with, and those of the reference model.
void TrainerRank::load_weights() {
  const auto fill = [&](model::Decoder& decoder, const std::string& dir) {
    if (dir.empty()) {
      model::init_weights(decoder, options_.seed);
    } else {
      model::load_weights(decoder, dir);
    }
  };
  if (options_.with_reference) {
    reference_arena_ = std::make_unique<weights::SharedArena>(arena_->bytes());
    reference_ =
        std::make_unique<model::Decoder>(options_.config, kDType, model::single_rank(), reference_arena_->data());
    fill(*reference_, options_.reference_dir.empty() ? options_.model_dir : options_.reference_dir);
  }
  const fs::path checkpoint = options_.checkpoint_dir;
  fill(*decoder_, checkpoint.empty() ? options_.model_dir : (checkpoint / kModelFolder).string());
}

void TrainerRank::load_checkpoint() {
  const fs::path folder = fs::path(options_.checkpoint_dir) / kTrainerFolder;
  optimizer_->load(folder / kOptimizerFile);
  const std::string where = (folder / kChecksumFile).string();
  const Json saved = parse_json(read_file(folder / kChecksumFile), where, ErrorKind::refused);
  const std::vector<std::string> problems =
      weights::checksum_problems(weights::parse_checksums(saved, where), {{"what was read", checkpoint_checksums()}});
  if (!problems.empty()) {
    throw Error(ErrorKind::refused,
                options_.checkpoint_dir + ": the contents are not those that were saved: " + join(problems, "; "),
                "remove this checkpoint to resume from an older one");
  }
}

uint16_t TrainerRank::meeting_port() const {
  return meeting_point_ ? meeting_point_->port() : 0;
}

void TrainerRank::setup(const std::string& meeting_host, uint16_t meeting_port) {
  const int size = static_cast<int>(options_.plan.ranks.size());
  const model::Membership membership{"trainer", options_.rank, size, options_.token, options_.meeting_timeout};
  if (size == 1) {
    world_ = model::RankGroup::alone("trainer");
  } else if (meeting_point_) {
    world_ = model::RankGroup::host(std::move(*meeting_point_), membership);
  } else {
    world_ = model::RankGroup::join(meeting_host, meeting_port, membership);
  }
  for (const placement::Slot& slot : options_.plan.slots) {
    if (options_.over_network[static_cast<size_t>(slot.engine)]) continue;
    std::vector<int> ranks(static_cast<size_t>(slot.count));
    std::iota(ranks.begin(), ranks.end(), slot.start);
    std::shared_ptr<model::RankGroup> group = world_->subgroup("slot of engine " + std::to_string(slot.engine), ranks);
    if (group) slot_groups_[slot.engine] = std::make_unique<RankSlotGroup>(slot, std::move(group));
  }
  log::info("trainer", "rank " + std::to_string(options_.rank) + ": joined a world of " + std::to_string(size) +
                           " and " + std::to_string(slot_groups_.size()) + " slot groups");
}

std::vector<StepFigures> TrainerRank::train(const std::string& batch_path) {
  const rollout::TrainBatch batch = rollout::read_train_batch(batch_path, options_.run_id);
  const BatchView view(batch);
  rollout::ScheduleOptions schedule_options;
  schedule_options.dp_size = options_.plan.layout.dp;
  schedule_options.max_tokens = options_.max_tokens_per_gpu;
  schedule_options.steps = batch.samples() / options_.global_batch_size;
  const std::vector<rollout::StepSchedule> steps = rollout::schedule_micro_batches(batch.lengths, schedule_options);
  const auto dp_rank = static_cast<size_t>(options_.plan.ranks[static_cast<size_t>(options_.rank)].dp_rank);

  // All old log-probs come from the weights that generated the samples, so they are computed before the first step, in
  // the same micro-batches as the training passes: then the first step's ratio is exactly 1 unless something is wrong.
  FixedLogprobs fixed;
  if (options_.policy.loss.type != algo::PolicyLossType::sft) fixed.old = logprobs_of(*decoder_, view, steps);
  if (reference_) fixed.reference = logprobs_of(*reference_, view, steps);
  std::vector<StepFigures> figures;
  for (const rollout::StepSchedule& step : steps) {
    std::vector<rollout::MicroBatch> all;
    for (const auto& rank : step.ranks) all.insert(all.end(), rank.begin(), rank.end());
    figures.push_back(train_step(view, step.ranks[dp_rank], all, fixed));
  }
  return figures;
}

std::vector<double> TrainerRank::logprobs_of(const model::Decoder& decoder, const BatchView& view,
                                             const std::vector<rollout::StepSchedule>& steps) const {
  const auto dp_rank = static_cast<size_t>(options_.plan.ranks[static_cast<size_t>(options_.rank)].dp_rank);
  std::vector<double> logprobs(static_cast<size_t>(view.response_offsets.back()), 0.0);
  for (const rollout::StepSchedule& step : steps) {
    for (const rollout::MicroBatch& micro_batch : step.ranks[dp_rank]) {
      const std::vector<double> values = response_logprobs(decoder, view, micro_batch, options_.policy.temperature);
      auto from = values.begin();
      for (const int64_t sample : micro_batch) {
        const int64_t begin = view.response_offsets[static_cast<size_t>(sample)];
        const int64_t count = view.batch.response_lengths[static_cast<size_t>(sample)];
        std::copy_n(from, count, logprobs.begin() + begin);
        from += count;
      }
    }
  }
  return logprobs;
}

StepFigures TrainerRank::train_step(const BatchView& view, const std::vector<rollout::MicroBatch>& mine,
                                    const std::vector<rollout::MicroBatch>& all, const FixedLogprobs& fixed) {
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  for (const rollout::MicroBatch& micro_batch : all) {
    for (const int64_t sample : micro_batch) {
      const auto at = static_cast<size_t>(sample);
      mask.insert(mask.end(), view.batch.loss_mask.begin() + view.response_offsets[at],
                  view.batch.loss_mask.begin() + view.response_offsets[at + 1]);
      lengths.push_back(view.batch.response_lengths[at]);
    }
  }
  const double denominator = algo::loss_denominator(options_.policy.loss.reducer, mask, lengths);

  StepFigures figures;
  std::vector<algo::LossTerms> terms;
  optimizer_->zero_gradient();
  for (const rollout::MicroBatch& micro_batch : mine) {
    if (micro_batch.empty()) continue;
    const MicroBatchResult result = backward(*decoder_, view, micro_batch, fixed, denominator, options_.policy);
    terms.push_back(result.terms);
    figures.entropy += result.entropy;
    figures.logprob += result.logprob;
    ++figures.micro_batches;
    for (const int64_t sample : micro_batch) figures.tokens += view.batch.lengths[static_cast<size_t>(sample)];
  }
  figures.terms = algo::sum_terms(terms);
  world_->all_reduce_sum(optimizer_->flat_gradient());
  const Optimizer::Result result = optimizer_->step();
  figures.grad_norm = result.grad_norm;
  figures.applied = result.applied;
  figures.lr = result.lr;
  return figures;
}

PushFigures TrainerRank::push(int64_t version, const std::vector<PushTarget>& targets) {
  std::vector<std::unique_ptr<weights::EngineClient>> engines;
  for (const PushTarget& target : targets) {
    engines.push_back(std::make_unique<weights::EngineClient>(client_, target.address, options_.transfer_timeout));
  }
  // Nothing is gathered or converted: every rank's arena holds whole tensors in checkpoint form, and engines read from
  // it.
  PushFigures figures;
  const std::vector<weights::PlacedTensor> tensors = placed_tensors(decoder_->layout());
  for (const auto& [engine, group] : slot_groups_) {
    weights::SlotPushOptions options;
    options.slot = group->slot();
    options.rank = options_.rank;
    options.uuid =
        options_.plan.devices[static_cast<size_t>(options_.plan.ranks[static_cast<size_t>(options_.rank)].device)].uuid;
    options.group = group.get();
    options.engine = engines[static_cast<size_t>(engine)].get();
    options.version = version;
    options.init_needed = targets[static_cast<size_t>(engine)].init_needed;
    weights::SlotPush push(std::move(options));
    push.start();
    for (const weights::Bucket& bucket : weights::arena_buckets(tensors, options_.buffer_bytes))
      push.send(bucket, arena_->handle(), 0, arena_->bytes(), weights::Lifetime::push);
    if (const std::optional<weights::EngineResult> result = push.finish()) figures.results.push_back(*result);
  }
  std::vector<weights::NetworkTarget> network_targets;
  for (const placement::Engine& engine : options_.plan.engines) {
    const auto at = static_cast<size_t>(engine.id);
    if (options_.over_network[at])
      network_targets.push_back({engines[at].get(), engine.count, targets[at].init_needed});
  }
  if (options_.rank == 0 && !network_targets.empty()) {
    if (!network_push_) {
      network_push_ = std::make_unique<weights::NetworkPush>(options_.host, options_.token, options_.transfer_timeout);
    }
    std::vector<tensor::TensorInfo> infos;
    std::vector<tensor::TensorView> views;
    for (const weights::PlacedTensor& tensor : tensors) {
      infos.push_back(tensor.info);
      views.push_back({tensor.info, arena_->data() + tensor.offset});
    }
    network_push_->start(network_targets, version);
    std::span<const tensor::TensorView> left = views;
    for (const weights::Bucket& bucket : weights::pack_buckets(infos, options_.buffer_bytes)) {
      network_staging_.resize(std::max<size_t>(network_staging_.size(), bucket.bytes));
      weights::pack_bucket(bucket, left, network_staging_.data());
      network_push_->send(bucket, network_staging_.data());
    }
    for (const weights::EngineResult& result : network_push_->finish()) figures.results.push_back(result);
    figures.extra_bytes = network_staging_.capacity();
  }
  return figures;
}

std::map<std::string, uint64_t> TrainerRank::checksums() const {
  std::map<std::string, uint64_t> sums;
  for (const arch::ArenaEntry& entry : decoder_->layout().entries) {
    sums[entry.parameter.full.name] = weights::full_checksum({entry.parameter.full, arena_->data() + entry.offset});
  }
  return sums;
}

void TrainerRank::save(const std::string& dir) const {
  const fs::path folder = fs::path(dir) / kTrainerFolder;
  make_directories(folder);
  model::save_weights(*decoder_, fs::path(dir) / kModelFolder);
  optimizer_->save(folder / kOptimizerFile);
  Json sums = Json::object();
  for (const auto& [name, sum] : checkpoint_checksums()) sums[name] = hex(sum);
  write_file_atomic(folder / kChecksumFile, Json({{"checksums", sums}}).dump(1) + "\n");
}

std::map<std::string, uint64_t> TrainerRank::checkpoint_checksums() const {
  std::map<std::string, uint64_t> sums = checksums();
  for (const tensor::TensorView& view : optimizer_->moments()) sums[view.info.name] = weights::full_checksum(view);
  return sums;
}

uint64_t TrainerRank::checkpoint_bytes() const {
  return 3 * arena_->bytes();  // weights and the optimizer's two moments, all float32
}

}  // namespace vime::trainer
