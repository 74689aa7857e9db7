#include "trainer/whole_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vime::trainer {

using model::RankLinks;

WholeTensors::WholeTensors(const arch::ModelConfig& config, tensor::DType dtype, std::shared_ptr<model::RankGroup> tp,
                           std::shared_ptr<model::RankGroup> stages)
    : tp_(std::move(tp)), stages_(std::move(stages)) {
  for (const arch::Parameter& parameter : arch::parameters(config, dtype)) tensors_.push_back(parameter.full);
  for (int stage = 0; stage < stages_->size(); ++stage) {
    std::vector<arch::ArenaLayout>& of_ranks = layouts_.emplace_back();
    for (int rank = 0; rank < tp_->size(); ++rank) {
      of_ranks.push_back(
          arch::arena_layout(config, dtype, rank, tp_->size(), arch::stage_of(config, stage, stages_->size())));
    }
  }
}

std::vector<WholeTensors::Part> WholeTensors::parts_of(const weights::Bucket& bucket, int stage, int tp_rank) const {
  const arch::ArenaLayout& layout = layouts_[static_cast<size_t>(stage)][static_cast<size_t>(tp_rank)];
  std::vector<Part> parts;
  auto from = layout.entries.begin();  // both are in checkpoint order
  for (const weights::BucketEntry& wanted : bucket.entries) {
    const auto found = std::find_if(from, layout.entries.end(), [&](const arch::ArenaEntry& entry) {
      return entry.parameter.full.name == wanted.info.name;
    });
    if (found == layout.entries.end()) continue;
    from = found + 1;
    if (found->shard.owner()) parts.push_back({&*found, wanted.offset});
  }
  return parts;
}

void WholeTensors::gather(const weights::Bucket& bucket, const std::byte* arena, std::byte* place) {
  gather_stage(bucket, arena, place);
  if (stages_->size() > 1) exchange_stages(bucket, place);
}

// Each tensor-parallel rank sends what it owns to the others; everybody puts the shards together.
void WholeTensors::gather_stage(const weights::Bucket& bucket, const std::byte* arena, std::byte* place) {
  std::vector<std::vector<Part>> parts;
  std::vector<uint64_t> ends;
  uint64_t end = 0;
  for (int rank = 0; rank < tp_->size(); ++rank) {
    parts.push_back(parts_of(bucket, stages_->rank(), rank));
    for (const Part& part : parts.back()) end += part.entry->bytes;
    ends.push_back(end);
  }
  scratch_.resize(std::max<size_t>(scratch_.size(), end));
  const auto begin_of = [&](size_t rank) { return scratch_.data() + (rank == 0 ? 0 : ends[rank - 1]); };
  const auto own = static_cast<size_t>(tp_->rank());
  std::byte* to = begin_of(own);
  for (const Part& part : parts[own]) {
    std::memcpy(to, arena + part.entry->offset, part.entry->bytes);
    to += part.entry->bytes;
  }
  std::vector<RankLinks::Space> in;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    in.push_back({begin_of(rank), ends[rank] - (rank == 0 ? 0 : ends[rank - 1]), nullptr});
  }
  tp_->exchange("shards", std::vector<RankLinks::Piece>(in.size(), {in[own].data, in[own].bytes}), in);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::byte* from = begin_of(rank);
    for (const Part& part : parts[rank]) {
      arch::place_shard(from, part.entry->parameter.full, part.entry->shard, place + part.offset);
      from += part.entry->bytes;
    }
  }
}

// A stage's tensors lie together in a bucket, since checkpoint order is the order of the stages.
void WholeTensors::exchange_stages(const weights::Bucket& bucket, std::byte* place) const {
  std::vector<RankLinks::Space> in;
  for (int stage = 0; stage < stages_->size(); ++stage) {
    uint64_t begin = bucket.bytes, end = 0;
    for (int rank = 0; rank < tp_->size(); ++rank) {
      for (const Part& part : parts_of(bucket, stage, rank)) {
        begin = std::min(begin, part.offset);
        end = std::max(end, part.offset + part.entry->parameter.full.bytes());
      }
    }
    in.push_back({place + begin, end > begin ? end - begin : 0, nullptr});
  }
  const RankLinks::Space& own = in[static_cast<size_t>(stages_->rank())];
  const std::vector<RankLinks::Piece> out(in.size(), {own.data, own.bytes});
  stages_->exchange("stages' tensors", out, in);
}

}  // namespace vime::trainer
