// What differs between kinds of engines in the requests of a push. vime's own engines and all releases of vLLM take
// the same routes in the same order; their bodies differ, and vLLM refuses a body with a key too many. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "weights/bucket.hpp"
#include "weights/manifest.hpp"
#include "weights/shared_place.hpp"

namespace vime::weights {

// How long the memory of a bucket keeps its contents: until the next bucket overwrites it (staging), or until the push
// has been finished on all ranks (the weights' own arena).
enum class Lifetime { bucket, push };

class EngineProtocol {
 public:
  virtual ~EngineProtocol() = default;

  virtual std::string name() const = 0;  // what protocol_named() makes it from
  // Header of every request that carries a secret, and its value.
  virtual std::pair<std::string, std::string> secret_header(const std::string& token) const = 0;
  virtual Json start_body() const = 0;
  virtual Json finish_body(int64_t version) const = 0;
  // GET /weight_info exists. Otherwise the one who drives the engine keeps its version.
  virtual bool tells_version() const = 0;
  // Names every parameter with the checksum of its bytes.
  virtual bool tells_checksums() const = 0;
  // Replies to requests for tokens say which versions computed them.
  virtual bool tells_spans() const = 0;
  // /pause is answered a while after the engine has paused, so that the answers to requests which it has aborted get
  // out first; /is_paused tells at once.
  virtual bool lingers_over_pause() const = 0;

  // What /collective_rpc is asked before the first reload from a folder; null: nothing.
  virtual Json first_reload_body() const = 0;

  // Colocated, where the engine reads the ranks' memory. backend: what handles name, "shm" the host's memory, "ipc" a
  // GPU's. Error{refused} for what the engine cannot do.
  virtual Json slot_init_info(const std::string& backend, Lifetime lifetime) const = 0;
  // places: by device UUID, one for each of the engine's workers, each with whole tensors at their entries' offsets.
  // sent: what the engine has; null: nothing is known.
  virtual Json slot_update_info(const Bucket& bucket, const std::map<std::string, SharedPlace>& places,
                                Lifetime lifetime, SentManifests* sent) const = 0;
  // Likewise, where the ranks of a replica have shards: workers put their parts together from all of them. vLLM's do
  // not.
  virtual Json slot_shards_info(const Bucket& bucket, const std::map<std::string, ReplicaPlaces>& places,
                                SentManifests* sent) const = 0;
  // Over the network. `source`: what the network source says of itself. The engine's workers are the ranks from
  // rank_offset on, of a group of world_size.
  virtual Json network_init_info(const Json& source, int rank_offset, int world_size) const = 0;
  // Messages that are these buckets, in this order.
  virtual Json network_update_info(std::span<const Bucket> buckets, SentManifests& sent) const = 0;
};

// "" or "embedded": vime's own engine. "vllm 0.25.1": a vLLM server that says this version. buffer_bytes: what both
// ends cut packed messages by (vllm_buckets). Error{refused} for another name, and for a release that cannot be driven.
std::shared_ptr<const EngineProtocol> protocol_named(const std::string& name, uint64_t buffer_bytes = 0);
inline constexpr char kVllmPrefix[] = "vllm ";
// Of a vLLM server until it has said its release: enough to ask it.
inline constexpr char kSomeVllm[] = "vllm 0.25.1";
bool is_vllm(const std::string& protocol);

// Buckets as vLLM cuts them: a bucket ends with the tensor that brings it above buffer_bytes; no bytes between tensors.
std::vector<Bucket> vllm_buckets(const std::vector<tensor::TensorInfo>& tensors, uint64_t buffer_bytes);

}  // namespace vime::weights
