#include "weights/vllm_protocol.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/strings.hpp"
#include "vllm/bodies.hpp"
#include "vllm/dialect.hpp"
#include "vllm/packed_chunks.hpp"
#include "vllm/pickle.hpp"

namespace vime::weights {
namespace {

std::vector<tensor::TensorInfo> infos_of(const Bucket& bucket) {
  std::vector<tensor::TensorInfo> infos;
  for (const BucketEntry& entry : bucket.entries) infos.push_back(entry.info);
  return infos;
}

// CUDA's own handle stands last in that of a GPU's memory. Another handle, of host memory, is its text: no vLLM can
// open it, but a server that stands in for one on a machine without GPUs can.
std::array<std::byte, 64> raw_handle(const std::string& handle) {
  std::array<std::byte, 64> raw{};
  const std::vector<std::string> parts = split(handle, ':');
  if (parts.front() == "cuda" && parts.back().size() == 2 * raw.size()) {
    VIME_CHECK(parse_hex(parts.back(), raw.data(), raw.size()), "weight handle " + handle);
    return raw;
  }
  VIME_CHECK(handle.size() < raw.size(), "weight handle " + handle);
  std::memcpy(raw.data(), handle.data(), handle.size());
  return raw;
}

vllm::DevicePlaces device_places(const std::map<std::string, SharedPlace>& places, uint64_t further) {
  vllm::DevicePlaces workers;
  for (const auto& [uuid, place] : places) workers.push_back({uuid, raw_handle(place.handle), place.offset + further});
  return workers;
}

// One tensor behind the other from the beginning, as vLLM slices a packed buffer.
void require_dense(const Bucket& bucket) {
  uint64_t end = 0;
  for (const BucketEntry& entry : bucket.entries) {
    VIME_CHECK(entry.offset == end, entry.info.name + " does not follow the tensor before it");
    end += entry.info.bytes();
  }
}

class VllmProtocol final : public EngineProtocol {
 public:
  VllmProtocol(vllm::Dialect dialect, uint64_t buffer_bytes) : dialect_(std::move(dialect)), packing_{buffer_bytes} {}

  std::string name() const override { return kVllmPrefix + dialect_.version; }
  std::pair<std::string, std::string> secret_header(const std::string& token) const override {
    return {"Authorization", "Bearer " + token};
  }
  Json start_body() const override { return vllm::start_body(dialect_); }
  Json finish_body(int64_t version) const override { return vllm::finish_body(dialect_, version); }
  bool tells_version() const override { return dialect_.finish_takes_version; }
  bool tells_checksums() const override { return false; }
  bool tells_spans() const override { return false; }        // /v1/completions does not, in any release
  bool lingers_over_pause() const override { return true; }  // 20 ms

  // A server that was started without weights has a loader that reads none.
  Json first_reload_body() const override {
    return {{"method", "update_config"}, {"kwargs", {{"overrides", {{"load_config", {{"load_format", "auto"}}}}}}}};
  }

  Json slot_init_info(const std::string& backend, Lifetime lifetime) const override {
    VIME_CHECK(backend == "ipc" || backend == "shm", backend);
    return vllm::ipc_init_info(dialect_, is_packed(lifetime));
  }
  // Memory that stays is read where each tensor lies; a staging is one packed buffer, since a server may hold on to
  // what it was shown tensor by tensor until the push is finished.
  Json slot_update_info(const Bucket& bucket, const std::map<std::string, SharedPlace>& places, Lifetime lifetime,
                        SentManifests*) const override {
    const std::vector<tensor::TensorInfo> infos = infos_of(bucket);
    if (is_packed(lifetime)) {
      require_dense(bucket);
      return vllm::ipc_packed_update_info(dialect_, infos,
                                          vllm::packed_ipc_pickle(device_places(places, 0), bucket.bytes));
    }
    std::vector<vllm::PlacedTensor> tensors;
    for (const BucketEntry& entry : bucket.entries) {
      tensors.push_back({entry.info, device_places(places, entry.offset)});
    }
    return vllm::ipc_update_info(dialect_, infos, vllm::tensors_ipc_pickle(dialect_, tensors));
  }
  Json slot_shards_info(const Bucket&, const std::map<std::string, ReplicaPlaces>&, SentManifests*) const override {
    throw Error(ErrorKind::internal, "vLLM is shown whole tensors only");
  }
  Json network_init_info(const Json& source, int rank_offset, int world_size) const override {
    const auto port = static_cast<uint16_t>(json_int(source, "master_port", "init_info"));
    return vllm::nccl_init_info(dialect_, json_string(source, "master_address", "init_info"), port,
                                {rank_offset, world_size}, packing_);
  }
  Json network_update_info(std::span<const Bucket> buckets, SentManifests&) const override {
    std::vector<tensor::TensorInfo> all;
    for (const Bucket& bucket : buckets) {
      require_dense(bucket);
      for (const BucketEntry& entry : bucket.entries) all.push_back(entry.info);
    }
    return vllm::nccl_update_info(dialect_, all, packing_);
  }

 private:
  static bool is_packed(Lifetime lifetime) { return lifetime == Lifetime::bucket; }

  vllm::Dialect dialect_;
  vllm::NcclPacking packing_;
};

}  // namespace

std::shared_ptr<const EngineProtocol> vllm_protocol(const std::string& version, uint64_t buffer_bytes) {
  return std::make_shared<VllmProtocol>(vllm::dialect_of(version), buffer_bytes);
}

std::vector<Bucket> vllm_buckets(const std::vector<tensor::TensorInfo>& tensors, uint64_t buffer_bytes) {
  std::vector<Bucket> buckets;
  for (const vllm::PackedChunk& chunk : vllm::nccl_chunks(tensors, buffer_bytes)) {
    Bucket& bucket = buckets.emplace_back();
    bucket.bytes = chunk.bytes;
    for (std::size_t i = 0; i < chunk.offsets.size(); ++i) {
      bucket.entries.push_back({tensors[chunk.first + i], chunk.offsets[i]});
    }
  }
  return buckets;
}

}  // namespace vime::weights
