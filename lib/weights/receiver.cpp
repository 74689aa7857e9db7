#include "weights/receiver.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "weights/bucket.hpp"

namespace vime::weights {

Receiver::Receiver(int worker, std::string uuid, std::chrono::milliseconds timeout)
    : worker_(worker), uuid_(std::move(uuid)), timeout_(timeout) {}

void Receiver::init(const Json& init_info) {
  backend_.clear();
  const std::string backend = json_string(init_info, "backend", "init_info");
  if (backend == "tcp") {
    TcpAddress address;
    address.host = json_string(init_info, "master_address", "init_info");
    address.port = static_cast<uint16_t>(json_int(init_info, "master_port", "init_info"));
    address.token = json_string(init_info, "token", "init_info");
    const int64_t rank = json_int(init_info, "rank_offset", "init_info") + worker_;
    const int64_t world = json_int(init_info, "world_size", "init_info");
    if (rank < 1 || rank >= world) {
      throw Error(ErrorKind::refused, "init_info: rank_offset " + std::to_string(rank - worker_) + " plus worker " +
                                          std::to_string(worker_) + " is outside of world_size " +
                                          std::to_string(world));
    }
    connection_ = std::make_unique<TcpReceiver>(address, static_cast<int>(rank), timeout_);
  } else if (backend != "shm") {
    throw Error(ErrorKind::refused, "init_info: unknown backend \"" + backend + "\"; this engine has shm and tcp");
  }
  backend_ = backend;
}

void Receiver::receive(const Json& update_info, const std::function<void(const tensor::TensorView&)>& take) {
  if (backend_ == "shm") {
    receive_shared(update_info, take);
  } else if (backend_ == "tcp") {
    receive_network(update_info, take);
  } else {
    throw Error(ErrorKind::refused, "weight transfer not initialized. Call init_weight_transfer_engine first.");
  }
}

void Receiver::receive_shared(const Json& update_info, const std::function<void(const tensor::TensorView&)>& take) {
  const Bucket bucket = parse_manifest(update_info);
  const Json& handles = json_member(update_info, "handles", "update_info");
  const auto own = handles.find(uuid_);
  if (own == handles.end()) {
    std::vector<std::string> available;
    for (const auto& [uuid, unused] : handles.items()) available.push_back(uuid);
    throw Error(ErrorKind::refused, "weight handle not found for device UUID " + uuid_ + " of worker " +
                                        std::to_string(worker_) + ". Available UUIDs: [" + join(available, ", ") + "]");
  }
  const std::string handle = json_string(*own, "handle", "update_info.handles");
  const auto offset = static_cast<uint64_t>(json_int(*own, "offset", "update_info.handles"));
  const auto bytes = static_cast<uint64_t>(json_int(*own, "bytes", "update_info.handles"));
  std::unique_ptr<SharedMapping>& mapping = mappings_[handle];
  if (!mapping) mapping = std::make_unique<SharedMapping>(handle);
  if (offset > mapping->bytes() || bytes > mapping->bytes() - offset || bucket.bytes > bytes) {
    throw Error(ErrorKind::refused, "update_info: tensors end at byte " + std::to_string(bucket.bytes) +
                                        " of a handle of " + std::to_string(bytes) + " bytes at offset " +
                                        std::to_string(offset) + " into shared memory of " +
                                        std::to_string(mapping->bytes()) + " bytes");
  }
  for (const BucketEntry& entry : bucket.entries) take({entry.info, mapping->data() + offset + entry.offset});
}

void Receiver::receive_network(const Json& update_info, const std::function<void(const tensor::TensorView&)>& take) {
  const Bucket bucket = parse_manifest(update_info);
  buffer_.resize(bucket.bytes);
  connection_->receive(buffer_.data(), bucket.bytes);
  for (const BucketEntry& entry : bucket.entries) take({entry.info, buffer_.data() + entry.offset});
}

}  // namespace vime::weights
