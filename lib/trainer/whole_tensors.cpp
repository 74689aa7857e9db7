#include "trainer/whole_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vime::trainer {

using model::RankLinks;

WholeTensors::WholeTensors(const arch::ModelConfig& config, tensor::DType dtype, std::shared_ptr<model::RankGroup> tp,
                           std::shared_ptr<model::RankGroup> stages)
    : tp_(std::move(tp)),
      stages_(std::move(stages)),
      shards_(arch::replica_layouts(config, dtype, tp_->size(), stages_->size())) {
  for (const arch::Parameter& parameter : arch::parameters(config, dtype)) tensors_.push_back(parameter.full);
}

void WholeTensors::gather(const weights::Bucket& bucket, const std::byte* arena, std::byte* place) {
  gather_stage(bucket, arena, place);
  if (stages_->size() > 1) exchange_stages(bucket, place);
}

// Each tensor-parallel rank sends what it owns to the others; everybody puts the shards together.
void WholeTensors::gather_stage(const weights::Bucket& bucket, const std::byte* arena, std::byte* place) {
  std::vector<std::vector<channels::BucketShards::Part>> parts;
  std::vector<uint64_t> ends;
  uint64_t end = 0;
  for (size_t rank = 0; rank < shards_.tp_size(); ++rank) {
    parts.push_back(shards_.parts_of(bucket, static_cast<size_t>(stages_->rank()), rank));
    for (const auto& part : parts.back()) end += part.entry->bytes;
    ends.push_back(end);
  }
  scratch_.resize(std::max<size_t>(scratch_.size(), end));
  const auto begin_of = [&](size_t rank) { return scratch_.data() + (rank == 0 ? 0 : ends[rank - 1]); };
  const auto own = static_cast<size_t>(tp_->rank());
  std::byte* to = begin_of(own);
  for (const auto& part : parts[own]) {
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
    for (const auto& part : parts[rank]) {
      arch::place_shard(from, part.entry->parameter.full, part.entry->shard, place + part.offset);
      from += part.entry->bytes;
    }
  }
}

void WholeTensors::exchange_stages(const weights::Bucket& bucket, std::byte* place) const {
  std::vector<RankLinks::Space> in;
  for (size_t stage = 0; stage < shards_.stages(); ++stage) {
    const channels::BucketShards::Range range = shards_.stage_range(bucket, stage);
    in.push_back({place + range.begin, range.bytes(), nullptr});
  }
  const RankLinks::Space& own = in[static_cast<size_t>(stages_->rank())];
  const std::vector<RankLinks::Piece> out(in.size(), {own.data, own.bytes});
  stages_->exchange("stages' tensors", out, in);
}

}  // namespace vime::trainer
