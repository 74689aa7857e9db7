#include "weights/receiver.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "weights/shared_arena.hpp"
#include "weights/tcp_channel.hpp"

namespace vime::weights {
namespace {

constexpr char kHandles[] = "update_info.handles";

class TcpNetwork final : public NetworkReceiver {
 public:
  TcpNetwork(const Json& init_info, const NetworkPlace& place)
      : connection_(address_of(init_info), place.rank, place.timeout) {}

  void receive(const std::vector<Bucket>& buckets, const TakeBucket& take) override {
    for (const Bucket& bucket : buckets) {
      buffer_.resize(bucket.bytes);
      connection_.receive(buffer_.data(), bucket.bytes);
      take(bucket, buffer_.data());
    }
  }

 private:
  static TcpAddress address_of(const Json& init_info) {
    TcpAddress address;
    address.host = json_string(init_info, "master_address", "init_info");
    address.port = static_cast<uint16_t>(json_int(init_info, "master_port", "init_info"));
    address.token = json_string(init_info, "token", "init_info");
    return address;
  }

  TcpReceiver connection_;
  std::vector<std::byte> buffer_;
};

}  // namespace

Receiver::Receiver(int worker, std::string uuid, std::chrono::milliseconds timeout)
    : worker_(worker), uuid_(std::move(uuid)), timeout_(timeout) {
  add_backend("shm", OpenMapping([](const std::string& handle) { return std::make_unique<SharedMapping>(handle); }));
  add_backend("tcp", OpenNetwork([](const Json& init_info, const NetworkPlace& place) {
                return std::make_unique<TcpNetwork>(init_info, place);
              }));
}

NetworkPlace Receiver::place_in(const Json& init_info) const {
  const int64_t rank = json_int(init_info, "rank_offset", "init_info") + worker_;
  const int64_t world = json_int(init_info, "world_size", "init_info");
  if (rank < 1 || rank >= world) {
    throw Error(ErrorKind::refused, "init_info: rank_offset " + std::to_string(rank - worker_) + " plus worker " +
                                        std::to_string(worker_) + " is outside of world_size " + std::to_string(world));
  }
  return {static_cast<int>(rank), static_cast<int>(world), timeout_};
}

void Receiver::init(const Json& init_info) {
  // Whoever initialises anew may be another process: what the old one shared must not be held for ever.
  backend_.clear();
  network_.reset();
  mappings_.clear();
  manifests_.forget();
  const std::string backend = json_string(init_info, "backend", "init_info");
  if (const auto network = networks_.find(backend); network != networks_.end()) {
    network_ = network->second(init_info, place_in(init_info));
  } else if (!shared_.contains(backend)) {
    std::vector<std::string> names;
    for (const auto& [name, unused] : shared_) names.push_back(name);
    for (const auto& [name, unused] : networks_) names.push_back(name);
    throw Error(ErrorKind::refused,
                "init_info: unknown backend \"" + backend + "\"; this engine has " + join(names, ", "));
  }
  backend_ = backend;
}

void Receiver::receive(const Json& update_info, const TakeBucket& take, const TakeShards& take_shards) {
  if (backend_.empty()) {
    throw Error(ErrorKind::refused, "weight transfer not initialized. Call init_weight_transfer_engine first.");
  }
  if (network_) {
    network_->receive(manifests_.buckets(update_info), take);
  } else {
    receive_shared(update_info, take, take_shards);
  }
}

SharedMemory Receiver::open(const SharedPlace& place) {
  std::unique_ptr<Mapping>& mapping = mappings_[place.handle];
  if (!mapping) mapping = shared_.at(backend_)(place.handle);
  if (place.offset > mapping->bytes() || place.bytes > mapping->bytes() - place.offset) {
    throw Error(ErrorKind::refused, "update_info: a handle of " + std::to_string(place.bytes) + " bytes at offset " +
                                        std::to_string(place.offset) + " into shared memory of " +
                                        std::to_string(mapping->bytes()) + " bytes");
  }
  return {mapping->data() + place.offset, place.bytes};
}

void Receiver::receive_shared(const Json& update_info, const TakeBucket& take, const TakeShards& take_shards) {
  const std::vector<Bucket>& buckets = manifests_.buckets(update_info);
  if (buckets.size() != 1) throw Error(ErrorKind::refused, "update_info: \"chunks\" are for networks");
  const Bucket& bucket = buckets.front();
  const Json& handles = json_member(update_info, "handles", "update_info");
  const auto own = handles.find(uuid_);
  if (own == handles.end()) {
    std::vector<std::string> available;
    for (const auto& [uuid, unused] : handles.items()) available.push_back(uuid);
    throw Error(ErrorKind::refused, "weight handle not found for device UUID " + uuid_ + " of worker " +
                                        std::to_string(worker_) + ". Available UUIDs: [" + join(available, ", ") + "]");
  }
  if (own->contains("shards")) {
    const ReplicaPlaces places = parse_replica_places(*own, kHandles);
    ReplicaMemory replica;
    replica.nearest = places.nearest;
    for (const auto& of_stage : places.ranks) {
      auto& memory = replica.ranks.emplace_back();
      for (const SharedPlace& place : of_stage) memory.push_back(open(place));
    }
    return take_shards(bucket, replica);
  }
  const SharedMemory memory = open(parse_shared_place(*own, kHandles));
  if (bucket.bytes > memory.bytes) {
    throw Error(ErrorKind::refused, "update_info: tensors end at byte " + std::to_string(bucket.bytes) +
                                        " of a handle of " + std::to_string(memory.bytes) + " bytes");
  }
  take(bucket, memory.data);
}

}  // namespace vime::weights
