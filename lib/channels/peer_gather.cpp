#include "channels/peer_gather.hpp"

#include <chrono>
#include <string>
#include <thread>

#include "channels/shard_copies.hpp"

namespace vime::channels {
namespace {

constexpr double kSpinSeconds = 0.01;  // more than a bucket takes as a rule

}  // namespace

PeerGather::PeerGather(PeerGatherOptions options)
    : arenas_(std::move(options.arenas)),
      buckets_(std::move(options.buckets)),
      timeout_(options.timeout),
      sources_(std::move(options.layouts), options.own) {}

gpu::Copies& PeerGather::copies(std::size_t number, std::byte* place) {
  std::unique_ptr<gpu::Copies>& copies = copies_[{number, place}];
  if (copies) return *copies;
  std::vector<gpu::Copy> list;
  for (const weights::BucketEntry& entry : buckets_[number].entries) {
    for (const ShardSource& source : sources_.of_whole(entry.info.name)) {
      list.push_back(copy_into_whole(of_rank(arenas_, source.rank) + source.entry->offset, entry.info,
                                     source.entry->shard, place + entry.offset));
    }
  }
  copies = std::make_unique<gpu::Copies>(list);
  return *copies;
}

void PeerGather::begin(std::size_t number, std::byte* place) {
  copies(number, place).run(stream_.get());
  there_[number % 2].record(stream_.get());
}

void PeerGather::wait(std::size_t number) {
  const Deadline deadline(timeout_);
  const auto start = SteadyClock::now();
  while (!there_[number % 2].done()) {
    if (seconds_since(start) > kSpinSeconds) std::this_thread::sleep_for(std::chrono::microseconds(50));
    deadline.check("the other ranks' weights, bucket " + std::to_string(number) + " of " +
                   std::to_string(buckets_.size()));
  }
}

}  // namespace vime::channels
