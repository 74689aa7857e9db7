#include "weights/engine_protocol.hpp"

#include "base/error.hpp"
#include "weights/vllm_protocol.hpp"

namespace vime::weights {
namespace {

class EmbeddedProtocol final : public EngineProtocol {
 public:
  std::string name() const override { return "embedded"; }
  std::pair<std::string, std::string> secret_header(const std::string& token) const override {
    return {"x-vime-token", token};
  }
  Json start_body() const override { return Json::object(); }
  Json finish_body(int64_t version) const override { return {{"weight_version", std::to_string(version)}}; }
  bool tells_version() const override { return true; }
  bool tells_checksums() const override { return true; }
  bool tells_spans() const override { return true; }
  bool lingers_over_pause() const override { return false; }

  Json first_reload_body() const override { return {}; }

  Json slot_init_info(const std::string& backend, Lifetime) const override { return {{"backend", backend}}; }
  Json slot_update_info(const Bucket& bucket, const std::map<std::string, SharedPlace>& places, Lifetime,
                        SentManifests* sent) const override {
    return shown(bucket, places, sent);
  }
  Json slot_shards_info(const Bucket& bucket, const std::map<std::string, ReplicaPlaces>& places,
                        SentManifests* sent) const override {
    return shown(bucket, places, sent);
  }
  Json network_init_info(const Json& source, int rank_offset, int world_size) const override {
    Json info = source;
    info["rank_offset"] = rank_offset;
    info["world_size"] = world_size;
    return info;
  }
  Json network_update_info(std::span<const Bucket> buckets, SentManifests& sent) const override {
    return sent.update_info(buckets);
  }

 private:
  template <typename Places>
  static Json shown(const Bucket& bucket, const std::map<std::string, Places>& places, SentManifests* sent) {
    Json update_info = sent == nullptr ? manifest_json(bucket) : sent->update_info({&bucket, 1});
    Json& handles = update_info["handles"] = Json::object();
    for (const auto& [uuid, place] : places) handles[uuid] = to_json(place);
    return update_info;
  }
};

}  // namespace

bool is_vllm(const std::string& protocol) {
  return protocol.starts_with(kVllmPrefix);
}

std::shared_ptr<const EngineProtocol> protocol_named(const std::string& name, uint64_t buffer_bytes) {
  if (name.empty() || name == "embedded") return std::make_shared<EmbeddedProtocol>();
  if (is_vllm(name)) return vllm_protocol(name.substr(std::string(kVllmPrefix).size()), buffer_bytes);
  throw Error(ErrorKind::refused, "no kind of engine is called \"" + name + "\"");
}

}  // namespace vime::weights
