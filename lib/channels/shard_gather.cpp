#include "channels/shard_gather.hpp"

#include <algorithm>

#include "channels/shard_copies.hpp"

namespace vime::channels {
namespace {

constexpr uint64_t kAlignment = 256;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

ShardGather::ShardGather(GatherOptions options) : options_(std::move(options)), shards_(std::move(options_.layouts)) {
  uint64_t scratch_bytes = 0;
  for (const weights::Bucket& bucket : options_.buckets) {
    shares_.push_back(shares_of(bucket));
    scratch_bytes = std::max(scratch_bytes, shares_.back().scratch_bytes);
  }
  if (scratch_bytes == 0) return;
  for (auto& scratch : scratch_) scratch = std::make_unique<gpu::DeviceMemory>(scratch_bytes);
}

ShardGather::Shares ShardGather::shares_of(const weights::Bucket& bucket) const {
  Shares shares;
  const auto own_stage = static_cast<std::size_t>(options_.stage);
  for (std::size_t rank = 0; rank < shards_.tp_size(); ++rank) {
    shares.parts.push_back(shards_.parts_of(bucket, own_stage, rank));
    Range range;
    for (const Part& part : shares.parts.back()) {
      if (range.end == 0) range.begin = part.entry->offset;
      range.end = std::max(range.end, part.entry->offset + part.entry->bytes);
    }
    shares.ranges.push_back(range);
    shares.places.push_back(shares.scratch_bytes);
    if (static_cast<int>(rank) != options_.tp_rank) shares.scratch_bytes += aligned(range.bytes());
  }
  for (std::size_t stage = 0; stage < shards_.stages(); ++stage) {
    shares.tensors.push_back(shards_.stage_range(bucket, stage));
  }
  return shares;
}

void ShardGather::exchange_shards(const Shares& shares, std::byte* scratch) {
  std::vector<gpu::Communicator::Send> sends;
  std::vector<gpu::Communicator::Receive> receives;
  const Range& own = shares.ranges[static_cast<std::size_t>(options_.tp_rank)];
  for (std::size_t rank = 0; rank < shares.ranges.size(); ++rank) {
    if (static_cast<int>(rank) == options_.tp_rank) continue;
    if (own.bytes() > 0) sends.push_back({static_cast<int>(rank), options_.arena + own.begin, own.bytes()});
    if (shares.ranges[rank].bytes() > 0) {
      receives.push_back({static_cast<int>(rank), scratch + shares.places[rank], shares.ranges[rank].bytes()});
    }
  }
  options_.tp->exchange(sends, receives, links_.get());
}

void ShardGather::exchange_stages(const Shares& shares, std::byte* place) {
  std::vector<gpu::Communicator::Send> sends;
  std::vector<gpu::Communicator::Receive> receives;
  const Range& own = shares.tensors[static_cast<std::size_t>(options_.stage)];
  for (std::size_t stage = 0; stage < shares.tensors.size(); ++stage) {
    if (static_cast<int>(stage) == options_.stage) continue;
    const Range& other = shares.tensors[stage];
    if (own.bytes() > 0) sends.push_back({static_cast<int>(stage), place + own.begin, own.bytes()});
    if (other.bytes() > 0) receives.push_back({static_cast<int>(stage), place + other.begin, other.bytes()});
  }
  options_.stages->exchange(sends, receives, links_.get());
}

gpu::Copies& ShardGather::placing(std::size_t number, std::byte* place, const std::byte* scratch) {
  std::unique_ptr<gpu::Copies>& placing = placings_[{number, place}];
  if (placing) return *placing;
  const Shares& shares = shares_[number];
  std::vector<gpu::Copy> copies;
  for (std::size_t rank = 0; rank < shares.parts.size(); ++rank) {
    const bool own = static_cast<int>(rank) == options_.tp_rank;
    for (const Part& part : shares.parts[rank]) {
      const std::byte* from = own ? options_.arena + part.entry->offset
                                  : scratch + shares.places[rank] + (part.entry->offset - shares.ranges[rank].begin);
      copies.push_back(copy_into_whole(from, part.entry->parameter.full, part.entry->shard, place + part.offset));
    }
  }
  placing = std::make_unique<gpu::Copies>(copies);
  return *placing;
}

void ShardGather::begin(std::size_t number, std::byte* place) {
  const std::size_t turn = number % 2;
  const Shares& shares = shares_[number];
  std::byte* const scratch = scratch_[turn] ? scratch_[turn]->data() : nullptr;
  placed_[turn].hold_back(links_.get());  // the scratch is free again
  if (options_.tp != nullptr) exchange_shards(shares, scratch);
  arrived_[turn].record(links_.get());
  arrived_[turn].hold_back(copies_.get());
  placing(number, place, scratch).run(copies_.get());
  placed_[turn].record(copies_.get());
  if (options_.stages != nullptr) {
    placed_[turn].hold_back(links_.get());
    exchange_stages(shares, place);
    ready_[turn].record(links_.get());
  } else {
    ready_[turn].record(copies_.get());
  }
}

void ShardGather::wait(std::size_t number) {
  // Every rank's own operations have deadlines in the groups; whichever group breaks, the others' do too.
  any_group()->wait(ready_[number % 2]);
}

}  // namespace vime::channels
