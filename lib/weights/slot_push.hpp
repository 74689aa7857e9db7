// The push into a colocated engine, as every trainer rank of its slot runs it. Handles are keyed by the rank's own
// device UUID, gathered over the slot group to the leader, merged, and posted once per bucket; each engine worker reads
// from its own device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "placement/placement.hpp"
#include "weights/bucket.hpp"
#include "weights/session.hpp"
#include "weights/shared_arena.hpp"

namespace vime::weights {

// The ranks of one slot. gather is collective over exactly these ranks: the leader gets every rank's text in rank
// order, others get {}.
class SlotGroup {
 public:
  virtual ~SlotGroup() = default;
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
};

struct SlotPush {
  placement::Slot slot;
  int rank = 0;
  std::string uuid;  // of this rank's device
  SlotGroup* group = nullptr;
  const SharedArena* arena = nullptr;  // where this rank's tensors lie, in checkpoint form
  std::vector<PlacedTensor> tensors;   // the same list on every rank of the slot
  uint64_t buffer_bytes = 0;
  int64_t version = 0;
  EngineClient* engine = nullptr;  // the leader's; others need none
  bool init_needed = false;        // the engine has not been initialised in its lifetime
};

// Returns the leader's result; nothing on other ranks. Never throws for an engine's failure: that is in the result, and
// every rank goes through all gathers whatever happens. The arena must not change until all ranks have returned.
std::optional<EngineResult> push_slot(const SlotPush& push);

}  // namespace vime::weights
