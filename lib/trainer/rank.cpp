#include "trainer/rank.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "algo/reduce.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "channels/device_arena.hpp"
#include "model/checkpoint.hpp"
#include "model/torch_device.hpp"
#include "rollout/train_batch.hpp"
#include "trainer/shared_gradients.hpp"
#include "trainer/step_figures.hpp"
#include "weights/shared_arena.hpp"

namespace vime::trainer {
// The tensor-parallel ranks of the plan: the decoder is made before they have met.
class TrainerRank::PlannedRanks final : public model::Collectives {
 public:
  PlannedRanks(int rank, int size) : rank_(rank), size_(size) {}
  void meet(model::CollectivesPtr ranks) { ranks_ = std::move(ranks); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<torch::Tensor> all_gather(const torch::Tensor& mine) override { return met().all_gather(mine); }
  torch::Tensor reduce_scatter(const torch::Tensor& whole) override { return met().reduce_scatter(whole); }

 private:
  model::Collectives& met() {
    VIME_CHECK(ranks_ != nullptr, "the ranks have not met");
    return *ranks_;
  }
  int rank_, size_;
  model::CollectivesPtr ranks_;
};

TrainerRank::TrainerRank(RankOptions options) : options_(std::move(options)) {
  device_ =
      model::select_torch_device(options_.device, options_.plan.devices[static_cast<size_t>(place().device)].uuid);
  // Flash attention's backward pass otherwise adds up in an order that changes from run to run.
  if (device_.is_cuda() && options_.rows_per_product > 0) at::globalContext().setDeterministicAlgorithms(true, true);
  const placement::Layout& layout = options_.plan.layout;
  tp_ = std::make_shared<PlannedRanks>(place().tp_rank, layout.tp);
  const uint64_t bytes = arch::arena_layout(options_.config, options_.dtype, place().tp_rank, layout.tp,
                                            arch::stage_of(options_.config, place().pp_rank, layout.pp))
                             .total_bytes;
  arena_ = make_arena(bytes);
  decoder_ = make_decoder(arena_->data());
  load_weights();
  decoder_->require_grad(true);
  optimizer_ = std::make_unique<Optimizer>(*decoder_, options_.optimizer);
  if (options_.rank == 0) meeting_point_ = std::make_unique<model::MeetingPoint>(options_.host);
  log::info("trainer", "rank " + std::to_string(options_.rank) + " (tp " + std::to_string(place().tp_rank) + ", pp " +
                           std::to_string(place().pp_rank) + ", " + replica() + "): " + options_.config.architecture +
                           ", " + format_bytes(bytes) + " of weights");
}

TrainerRank::~TrainerRank() = default;

std::string TrainerRank::replica() const {
  return "dp " + std::to_string(place().dp_rank) + ", cp " + std::to_string(place().cp_rank);
}

std::unique_ptr<weights::Arena> TrainerRank::make_arena(uint64_t bytes) const {
  if (!device_.is_cuda()) return std::make_unique<weights::SharedArena>(bytes);
  auto arena = std::make_unique<channels::DeviceArena>(bytes);
  // The optimizer counts on padding that is zero.
  const auto type = torch::TensorOptions().dtype(torch::kUInt8).device(device_);
  torch::from_blob(arena->data(), {static_cast<int64_t>(bytes)}, type).zero_();
  return arena;
}

std::unique_ptr<model::Decoder> TrainerRank::make_decoder(std::byte* arena) const {
  const arch::Stage stage = arch::stage_of(options_.config, place().pp_rank, options_.plan.layout.pp);
  auto decoder = std::make_unique<model::Decoder>(options_.config, options_.dtype, tp_, arena, stage, true, device_);
  decoder->set_recompute(options_.recompute);
  decoder->set_rows_per_product(options_.rows_per_product);
  return decoder;
}

uint16_t TrainerRank::meeting_port() const {
  return meeting_point_ ? meeting_point_->port() : 0;
}

model::CollectivesPtr TrainerRank::tensor_parallel(std::shared_ptr<model::RankGroup> tp) const {
  return LayoutGroups::collectives(tp, groups_.tp_devices);
}

std::unique_ptr<PolicyStep> TrainerRank::make_policy_step() const {
  return std::make_unique<PolicyStep>(options_.policy, groups_.context_parallel(), groups_.pipeline());
}

void TrainerRank::setup(const std::string& meeting_host, uint16_t meeting_port) {
  const int size = static_cast<int>(options_.plan.ranks.size());
  // While a slot's leader waits for its engine, other ranks wait for it in their groups.
  const auto timeout = options_.meeting_timeout + options_.transfer_timeout;
  const model::Membership membership{"trainer", options_.rank, size, options_.token, timeout};
  std::shared_ptr<model::RankGroup> world;
  if (size == 1) {
    world = model::RankGroup::alone("trainer");
  } else if (meeting_point_) {
    world = model::RankGroup::host(std::move(*meeting_point_), membership);
  } else {
    world = model::RankGroup::join(meeting_host, meeting_port, membership);
  }
  groups_ = join_layout(world, options_.plan, options_.config.tie_word_embeddings);
  if (device_.is_cuda()) join_devices(groups_, device_, timeout);
  tp_->meet(tensor_parallel(groups_.tp));
  policy_ = make_policy_step();
  whole_ = std::make_unique<WholeTensors>(options_.config, options_.dtype, groups_.tp, groups_.stages);
  whole_state_ = std::make_unique<WholeTensors>(options_.config, tensor::DType::f32, groups_.tp, groups_.stages);
  optimizer_->share(groups_.sharers(), world);
  if (!options_.checkpoint_dir.empty()) load_optimizer();

  // Slots do not overlap, so that one call makes the groups of all.
  std::optional<placement::Slot> own;
  for (const placement::Slot& slot : options_.plan.slots) {
    if (options_.routes[static_cast<size_t>(slot.engine)] == spec::Route::memory && slot.contains(options_.rank))
      own = slot;
  }
  groups_.slot = join_slot(own);
  if (own) slot_ = std::make_unique<RankSlotGroup>(*own, groups_.slot);
  const bool by_folder = std::all_of(options_.routes.begin(), options_.routes.end(),
                                     [](spec::Route route) { return route == spec::Route::disk; });
  if (whole_->needed() && !by_folder) {
    arenas_ = std::make_unique<ReplicaArenas>(groups_, options_.plan, options_.rank, on_gpu(), *arena_,
                                              decoder_->layout().total_bytes);
  }
  log::info("trainer", "rank " + std::to_string(options_.rank) + ": joined a world of " + std::to_string(size) +
                           (own ? " and the slot of engine " + std::to_string(own->engine) : ""));
}

std::shared_ptr<model::RankGroup> TrainerRank::join_slot(const std::optional<placement::Slot>& slot) {
  std::vector<int> ranks(slot ? static_cast<size_t>(slot->count) : 0);
  std::iota(ranks.begin(), ranks.end(), slot ? slot->start : 0);
  return groups_.world->subgroup("slot", ranks);
}

rollout::ScheduleOptions TrainerRank::schedule_options(int64_t samples) const {
  rollout::ScheduleOptions options;
  options.dp_size = options_.plan.layout.dp;
  options.max_tokens = options_.max_tokens_per_gpu * options_.plan.layout.cp;
  options.steps = samples / options_.global_batch_size;
  return options;
}

std::pair<std::vector<StepFigures>, rollout::StepAnswer> TrainerRank::train(const std::string& batch_path,
                                                                            const rollout::StepProbe* probe) {
  weights_are_there_ = false;
  if (probe != nullptr && probe->round_weights) round_weights();
  const rollout::TrainBatch batch = rollout::read_train_batch(batch_path, options_.run_id);
  const BatchView view(batch);
  const std::vector<rollout::StepSchedule> steps =
      rollout::schedule_micro_batches(batch.lengths, schedule_options(batch.samples()));
  VIME_CHECK(probe == nullptr || steps.size() == 1, "a probe is of one optimizer step");

  // All old log-probs come from the weights that generated the samples, so they are computed before the first step, in
  // the same micro-batches as the training passes: then the first step's ratio is exactly 1 unless something is wrong.
  std::vector<rollout::MicroBatch> mine;
  for (const rollout::StepSchedule& step : steps) {
    const auto& own = step.ranks[static_cast<size_t>(place().dp_rank)];
    mine.insert(mine.end(), own.begin(), own.end());
  }
  FixedLogprobs fixed;
  if (options_.policy.loss.type != algo::PolicyLossType::sft) fixed.old = policy_->logprobs(*decoder_, view, mine);
  if (reference_) fixed.reference = policy_->logprobs(*reference_, view, mine);
  rollout::StepAnswer answer;
  if (probe != nullptr) answer.logprobs = fixed.old.empty() ? policy_->logprobs(*decoder_, view, mine) : fixed.old;
  std::vector<StepFigures> figures;
  for (const rollout::StepSchedule& step : steps) figures.push_back(train_step(view, step, fixed));
  if (probe == nullptr) return {std::move(figures), {}};
  answer.logprobs_after = policy_->logprobs(*decoder_, view, mine);
  answer.shards = figures_of_step(*probe);
  return {std::move(figures), std::move(answer)};
}

void TrainerRank::round_weights() {
  const torch::NoGradGuard no_grad;
  optimizer_->round_weights(torch::kBFloat16);
  if (!reference_) return;
  for (model::Decoder::Named& parameter : reference_->parameters()) {
    parameter.value.copy_(parameter.value.to(torch::kBFloat16));
  }
}

std::vector<double> TrainerRank::logprobs(const std::string& batch_path) {
  const rollout::TrainBatch batch = rollout::read_train_batch(batch_path, options_.run_id);
  rollout::ScheduleOptions one_step = schedule_options(batch.samples());
  one_step.steps = 1;
  const std::vector<rollout::StepSchedule> steps = rollout::schedule_micro_batches(batch.lengths, one_step);
  PolicyOptions plain = options_.policy;
  plain.temperature = 1.0;
  const PolicyStep step(plain, groups_.context_parallel(), groups_.pipeline());
  return step.logprobs(*decoder_, BatchView(batch), steps.at(0).ranks[static_cast<size_t>(place().dp_rank)]);
}

StepFigures TrainerRank::train_step(const BatchView& view, const rollout::StepSchedule& step,
                                    const FixedLogprobs& fixed) {
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  for (const std::vector<rollout::MicroBatch>& of_rank : step.ranks) {
    for (const rollout::MicroBatch& samples : of_rank) {
      for (const int64_t sample : samples) {
        const auto at = static_cast<size_t>(sample);
        mask.insert(mask.end(), view.batch.loss_mask.begin() + view.response_offsets[at],
                    view.batch.loss_mask.begin() + view.response_offsets[at + 1]);
        lengths.push_back(view.batch.response_lengths[at]);
      }
    }
  }
  const double denominator = algo::loss_denominator(options_.policy.loss.reducer, mask, lengths);
  const std::vector<rollout::MicroBatch>& mine = step.ranks[static_cast<size_t>(place().dp_rank)];

  optimizer_->zero_gradient();
  const PolicyFigures policy = policy_->backward(*decoder_, view, mine, fixed, denominator);
  complete_gradients();
  const Optimizer::Result result = optimizer_->step();

  StepFigures figures;
  const bool reports = groups_.pipeline().last() && place().tp_rank == 0 && place().cp_rank == 0;
  if (reports) {
    figures.policy = policy;
    for (const rollout::MicroBatch& samples : mine) {
      for (const int64_t sample : samples) figures.tokens += view.batch.lengths[static_cast<size_t>(sample)];
    }
  }
  figures.grad_norm = result.grad_norm;
  figures.applied = result.applied;
  figures.lr = result.lr;
  return figures;
}

void TrainerRank::complete_gradients() {
  sum_over_tensor_parallel_copies(optimizer_->flat_gradient(), decoder_->layout(), *tp_);
  sum_tied_embeddings();
}

void TrainerRank::sum_tied_embeddings() {
  if (!groups_.ends) return;
  trainer::sum_tied_embeddings(optimizer_->flat_gradient(), decoder_->layout(), *groups_.tied_ends());
}

std::vector<rollout::ShardFigures> TrainerRank::figures_of_step(const rollout::StepProbe& probe) {
  const torch::Tensor gradient = optimizer_->summed_gradient();
  const torch::Tensor& weights = optimizer_->weights();
  if (!probe.write.empty()) {
    VIME_CHECK(options_.plan.ranks.size() == 1, "a single rank writes a step's file");
    write_step(probe.write, decoder_->layout(), gradient, weights);
  }
  // Rounded numbers are apart by whole spacings only, of which one is no difference: masters say how far they really
  // are.
  return step_figures(decoder_->layout(), gradient, probe.round_weights ? optimizer_->whole_state("master") : weights,
                      probe.against, probe.weight_spacing);
}

void TrainerRank::offload() {
  optimizer_->offload();
}

void TrainerRank::onload() {
  optimizer_->onload();
}

TrainerRank::MemoryFigures TrainerRank::memory() {
  const model::TorchMemory memory = model::torch_memory(device_);
  model::reset_peak_memory(device_);
  return {arena_->bytes() + (reference_arena_ ? reference_arena_->bytes() : 0), memory.used_bytes,
          memory.peak_used_bytes};
}

}  // namespace vime::trainer
