// The push into a colocated engine, as every trainer rank of its slot drives it, bucket by bucket. Handles are keyed by
// the rank's own device UUID, gathered over the slot group to the leader, merged, and posted once per bucket; each
// engine worker reads what is named for its own device. start, send and finish never throw for what an engine did: the
// first error is kept, and every rank takes part in all collectives whatever happens, since its peers wait for it in
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "placement/placement.hpp"
#include "weights/bucket.hpp"
#include "weights/manifest.hpp"
#include "weights/session.hpp"

namespace vime::weights {

// The ranks of one slot. Both calls are collective over exactly these ranks and throw when a peer has gone.
class SlotGroup {
 public:
  virtual ~SlotGroup() = default;
  // The leader gets every rank's text in rank order, others get {}.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  // Returns when every rank has come here.
  virtual void barrier() = 0;
};

struct SlotPushOptions {
  placement::Slot slot;
  int rank = 0;
  std::string uuid;                // of this rank's device
  SlotGroup* group = nullptr;      // outlives the push
  EngineClient* engine = nullptr;  // the leader's, outlives the push; others need none
  int64_t version = 0;
  bool init_needed = false;              // the engine has not been initialised in its lifetime
  std::string backend = "shm";           // what handles name: "shm" the host's memory, "ipc" a GPU's
  Lifetime lifetime = Lifetime::bucket;  // of what send() is given
  SentManifests* sent = nullptr;  // what this engine has; outlives the push. Null: every update names all its tensors
};

class SlotPush {
 public:
  explicit SlotPush(SlotPushOptions options);

  void start();
  // Collective: every rank of the slot, with the same bucket. `place`: of this rank. Workers keep every handle they
  // have seen mapped, so the staging should be one arena for all pushes. With Lifetime::bucket no worker of the slot
  // reads any rank's memory any more when this returns. One exception: an engine that did not answer in time may still
  // be reading; it has failed and never gets the version.
  void send(const Bucket& bucket, const SharedPlace& place);
  // The same in two steps, between which the engine reads and this rank may get the next bucket ready elsewhere.
  // Before begin() this rank's GPU has done everything that writes the memory: the engine's GPU work knows nothing of
  // this process's streams. The engine has done all its reading before it answers.
  void begin(const Bucket& bucket, const SharedPlace& place);
  void complete();
  // As begin(), of weights that lie in the shards of a replica: the one that this rank is of. Workers of all slots of
  // the replica read them, so before it every rank of the replica has done what writes its weights, and none writes
  // them before all slots have finished; Lifetime::push. Not of vLLM.
  void begin_shards(const Bucket& bucket, const ReplicaPlaces& replica);
  // The leader's result; nothing on other ranks.
  std::optional<EngineResult> finish();

 private:
  void post(const Json& own, const std::function<Json(const std::map<std::string, Json>& places)>& update_info);

  SlotPushOptions options_;
  std::optional<PushSession> session_;               // the leader's
  std::optional<std::future<http::Outcome>> reply_;  // to the update under way
};

}  // namespace vime::weights
