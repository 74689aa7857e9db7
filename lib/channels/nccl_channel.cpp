#include "channels/nccl_channel.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/log.hpp"
#include "vllm/pickle.hpp"
#include "vllm/store_server.hpp"

namespace vime::channels {
namespace {

constexpr uint64_t kWarmUpBytes = 4 << 20;

// Every kind of operation that pushes use, once.
void broadcast_once(gpu::Communicator& group, gpu::Stream stream) {
  const gpu::DeviceMemory memory(kWarmUpBytes);
  group.broadcast(memory.data(), memory.bytes(), 0, stream);
  group.wait(stream);
}

class OwnMeetingPlace final : public MeetingPlace {
 public:
  OwnMeetingPlace(std::string host, std::string token, std::string unique_id, int world_size)
      : host_(std::move(host)),
        token_(std::move(token)),
        unique_id_(std::move(unique_id)),
        ties_(host_, token_, world_size) {}
  Json init_info() const override {
    return {{"backend", "nccl"},
            {"unique_id", unique_id_},
            {"master_address", host_},
            {"master_port", ties_.port()},
            {"token", token_}};
  }
  void warm_up(gpu::Communicator& group, gpu::Stream stream) const override { broadcast_once(group, stream); }

 private:
  std::string host_, token_, unique_id_;
  weights::TcpSource ties_;
};

class VllmMeetingPlace final : public MeetingPlace {
 public:
  VllmMeetingPlace(std::string host, const std::string& unique_id) : host_(std::move(host)), store_(host_) {
    vllm::NcclUniqueId id{};
    VIME_CHECK(parse_hex(unique_id, id.data(), id.size()), "the id of an NCCL communicator");
    store_.set(vllm::kUniqueIdKey, vllm::unique_id_pickle(id));
  }
  Json init_info() const override { return {{"master_address", host_}, {"master_port", store_.port()}}; }
  void warm_up(gpu::Communicator& group, gpu::Stream stream) const override {
    const gpu::DeviceMemory number(sizeof(float));
    group.all_reduce(number.data(), number.data(), 1, gpu::Scalar::f32, gpu::Reduction::sum, stream);
    group.wait(stream);
  }

 private:
  std::string host_;
  vllm::StoreServer store_;
};

weights::TcpAddress address_of(const Json& init_info) {
  return {json_string(init_info, "master_address", "init_info"),
          static_cast<uint16_t>(json_int(init_info, "master_port", "init_info")),
          json_string(init_info, "token", "init_info")};
}

}  // namespace

MakeMeetingPlace own_meeting_place(std::string host, std::string token) {
  return [host = std::move(host), token = std::move(token)](const std::string& unique_id, int world_size) {
    return std::make_unique<OwnMeetingPlace>(host, token, unique_id, world_size);
  };
}

MakeMeetingPlace vllm_meeting_place(std::string host) {
  return [host = std::move(host)](const std::string& unique_id, int) {
    return std::make_unique<VllmMeetingPlace>(host, unique_id);
  };
}

NcclSource::NcclSource(const MakeMeetingPlace& make_place, int world_size, std::chrono::milliseconds timeout)
    : world_size_(world_size),
      timeout_(timeout),
      unique_id_(gpu::Communicator::unique_id()),
      place_(make_place(unique_id_, world_size)) {}

NcclSource::~NcclSource() = default;

void NcclSource::give_up(const std::string& reason) {
  if (broken_) return;
  broken_ = true;
  if (group_) group_->leave(reason);
  place_.reset();  // vime's own workers learn of it
}

std::map<int, std::string> NcclSource::guarded(const std::vector<int>& ranks, const weights::Abandoned& abandoned,
                                               const std::function<void()>& step) {
  std::string problem;
  given_up_ = [&]() -> std::string {
    const auto left = std::find_if(ranks.begin(), ranks.end(), abandoned);
    return left == ranks.end() ? "" : "the engine of rank " + std::to_string(*left) + " takes no part any more";
  };
  try {
    if (broken_) throw Error(ErrorKind::process_failed, "the NCCL group of the weights is broken");
    step();
  } catch (const Error& error) {
    problem = error.message();
    give_up(problem);
  }
  given_up_ = nullptr;
  if (problem.empty()) return {};
  std::map<int, std::string> missed;
  for (const int rank : ranks) missed[rank] = problem;
  return missed;
}

void NcclSource::meet(const weights::Abandoned& abandoned) {
  std::vector<int> ranks;
  for (int rank = 1; rank < world_size_; ++rank) ranks.push_back(rank);
  const auto missed = guarded(ranks, abandoned, [&] {
    gpu::CommunicatorOptions options{"weights", 0, world_size_, timeout_, {}};
    options.given_up = [this] { return given_up_ ? given_up_() : ""; };
    group_ = std::make_unique<gpu::Communicator>(std::move(options), unique_id_);
    place_->warm_up(*group_, stream_.get());
  });
  if (!missed.empty()) throw Error(ErrorKind::process_failed, missed.begin()->second);
}

std::map<int, std::string> NcclSource::send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                            const weights::Abandoned& abandoned) {
  return guarded(ranks, abandoned, [&] {
    // NCCL takes the memory of the root as one that it may write; as the root's it is only read.
    group_->broadcast(const_cast<std::byte*>(data), bytes, 0, stream_.get());
    sent_[messages_ % 2].record(stream_.get());
    ++messages_;
    // The next message is with NCCL before this one's predecessor is waited for, so that the GPU never idles.
    group_->wait(sent_[messages_ % 2]);
  });
}

std::map<int, std::string> NcclSource::complete(const std::vector<int>& ranks, const weights::Abandoned& abandoned) {
  return guarded(ranks, abandoned, [&] { group_->wait(stream_.get()); });
}

NcclReceiver::NcclReceiver(const Json& init_info, const weights::NetworkPlace& place, DeviceShardStore& store)
    : tie_(address_of(init_info), place.rank, place.timeout), store_(store) {
  gpu::CommunicatorOptions options{"weights", place.rank, place.world_size, place.timeout, {}};
  options.given_up = [this] { return tie_.closed() ? std::string("the source has gone or given up") : ""; };
  group_ = std::make_unique<gpu::Communicator>(std::move(options), json_string(init_info, "unique_id", "init_info"));
  broadcast_once(*group_, stream_.get());
}

void NcclReceiver::receive(const std::vector<weights::Bucket>& buckets, const weights::TakeBucket& take) {
  uint64_t largest = 1;
  for (const weights::Bucket& bucket : buckets) largest = std::max(largest, bucket.bytes);
  for (std::unique_ptr<gpu::DeviceMemory>& buffer : buffers_) {
    if (buffer && buffer->bytes() >= largest) continue;
    buffer.reset();  // before its successor is there
    buffer = std::make_unique<gpu::DeviceMemory>(largest);
  }
  try {
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const std::size_t turn = i % 2;
      copied_[turn].hold_back(stream_.get());
      group_->broadcast(buffers_[turn]->data(), buckets[i].bytes, 0, stream_.get());
      arrived_[turn].record(stream_.get());
      arrived_[turn].hold_back(store_.stream());
      take(buckets[i], buffers_[turn]->data());
      copied_[turn].record(store_.stream());
    }
    group_->wait(stream_.get());
    group_->wait(store_.stream());
  } catch (const Error& error) {
    // What is under way would wait for a source that this worker has left.
    group_->leave(error.message());
    throw;
  }
}

}  // namespace vime::channels
