// The network channel between GPUs: every message is one broadcast from the source to all workers. How workers find the
// group is a matter of what they are.
//   vime's own   init_info {"backend": "nccl", "unique_id", "master_address", "master_port", "token", "rank_offset",
//                "world_size"}. Beside the group runs a TCP connection of each worker to the source that carries
//                nothing: when it closes, the source has gone or given up, and the worker stops waiting for it. Both
//                ends broadcast once while they meet, so that NCCL's connections are there before the first push.
//   vLLM's       init_info as vllm/bodies.hpp has it: the group's unique id is in a store that the source serves. Both
//                ends add a number up while they meet. A worker that waits for a source that has gone waits for ever;
//                its server has failed then, and is ended.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channels/shard_store.hpp"
#include "gpu/communicator.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/streams.hpp"
#include "weights/network_source.hpp"
#include "weights/receiver.hpp"
#include "weights/tcp_channel.hpp"

namespace vime::channels {

// Where workers come to join a group that the source is in. It ends with the group.
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;
  virtual Json init_info() const = 0;
  // What both ends do first in a new group.
  virtual void warm_up(gpu::Communicator& group, gpu::Stream stream) const = 0;
};
// unique_id: of the group, see gpu::Communicator. host: where workers reach this process, a numeric IPv4 address.
using MakeMeetingPlace = std::function<std::unique_ptr<MeetingPlace>(const std::string& unique_id, int world_size)>;
MakeMeetingPlace own_meeting_place(std::string host, std::string token);
MakeMeetingPlace vllm_meeting_place(std::string host);

// The weights are sent from the calling thread's GPU. Before send() everything that writes its memory has been done:
// broadcasts run on a stream of their own.
class NcclSource final : public weights::NetworkSource {
 public:
  NcclSource(const MakeMeetingPlace& make_place, int world_size, std::chrono::milliseconds timeout);
  ~NcclSource() override;

  Json init_info() const override { return place_->init_info(); }
  bool all_or_none() const override { return true; }
  void meet(const weights::Abandoned& abandoned) override;
  std::map<int, std::string> send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                  const weights::Abandoned& abandoned) override;
  std::map<int, std::string> complete(const std::vector<int>& ranks, const weights::Abandoned& abandoned) override;
  bool broken() const override { return broken_; }

 private:
  std::map<int, std::string> guarded(const std::vector<int>& ranks, const weights::Abandoned& abandoned,
                                     const std::function<void()>& step);
  void give_up(const std::string& reason);

  int world_size_;
  std::chrono::milliseconds timeout_;
  std::string unique_id_;
  std::unique_ptr<MeetingPlace> place_;
  gpu::OwnedStream stream_{gpu::Priority::first};
  gpu::Event sent_[2];  // of the messages with even and odd numbers
  uint64_t messages_ = 0;
  std::function<std::string()> given_up_;
  std::unique_ptr<gpu::Communicator> group_;
  bool broken_ = false;
};

// Takes the messages into two buffers by turns, so that the tensors of one are put in their places while the next one
// arrives; the buffers stay for the next push. `store` outlives this and is where `take` puts the tensors: the copies
// are on its stream.
class NcclReceiver final : public weights::NetworkReceiver {
 public:
  NcclReceiver(const Json& init_info, const weights::NetworkPlace& place, DeviceShardStore& store);
  void receive(const std::vector<weights::Bucket>& buckets, const weights::TakeBucket& take) override;

 private:
  weights::TcpReceiver tie_;
  DeviceShardStore& store_;
  gpu::OwnedStream stream_{gpu::Priority::first};  // a broadcast waits for no copy of the message before it
  gpu::Event arrived_[2], copied_[2];
  std::unique_ptr<gpu::DeviceMemory> buffers_[2];
  std::unique_ptr<gpu::Communicator> group_;
};

}  // namespace vime::channels
