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
    std::vector<Owned>& of_ranks = owned_.emplace_back();
    for (int rank = 0; rank < tp_->size(); ++rank) {
      Owned& owned = of_ranks.emplace_back();
      const arch::ArenaLayout layout =
          arch::arena_layout(config, dtype, rank, tp_->size(), arch::stage_of(config, stage, stages_->size()));
      for (const arch::ArenaEntry& entry : layout.entries) {
        if (entry.shard.owner()) owned.emplace(entry.parameter.full.name, entry);
      }
    }
  }
}

std::vector<WholeTensors::Part> WholeTensors::parts_of(const weights::Bucket& bucket, int stage, int tp_rank) const {
  const Owned& owned = owned_[static_cast<size_t>(stage)][static_cast<size_t>(tp_rank)];
  std::vector<Part> parts;
  for (const weights::BucketEntry& wanted : bucket.entries) {
    if (const auto found = owned.find(wanted.info.name); found != owned.end()) {
      parts.push_back({&found->second, wanted.offset});
    }
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
    for (const Part& part : parts_of(bucket, stage, 0)) {  // the first rank owns a part of every tensor
      begin = std::min(begin, part.offset);
      end = std::max(end, part.offset + part.entry->parameter.full.bytes());
    }
    in.push_back({place + begin, end > begin ? end - begin : 0, nullptr});
  }
  const RankLinks::Space& own = in[static_cast<size_t>(stages_->rank())];
  const std::vector<RankLinks::Piece> out(in.size(), {own.data, own.bytes});
  stages_->exchange("stages' tensors", out, in);
}

}  // namespace vime::trainer
