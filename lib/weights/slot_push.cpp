#include "weights/slot_push.hpp"

#include "base/error.hpp"

namespace vime::weights {
namespace {

// Merges the ranks' handles, one entry per UUID. A missing or doubled peer is refused: its engine worker would find
// nothing, or another device's memory.
Json merge_handles(const std::vector<std::string>& texts, const placement::Slot& slot) {
  if (static_cast<int>(texts.size()) != slot.count) {
    throw Error(ErrorKind::process_failed, "slot of engine " + std::to_string(slot.engine) + ": handles of " +
                                               std::to_string(texts.size()) + " ranks, expected " +
                                               std::to_string(slot.count) + " (ranks " + std::to_string(slot.start) +
                                               " to " + std::to_string(slot.start + slot.count - 1) + ")");
  }
  Json merged = Json::object();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string who = "rank " + std::to_string(slot.start + static_cast<int>(i));
    if (texts[i].empty()) {
      throw Error(ErrorKind::process_failed,
                  "slot of engine " + std::to_string(slot.engine) + ": no handle from " + who);
    }
    const Json handles = parse_json(texts[i], "handle of " + who);
    for (const auto& [uuid, handle] : handles.items()) {
      if (merged.contains(uuid)) {
        throw Error(ErrorKind::process_failed, "slot of engine " + std::to_string(slot.engine) + ": device UUID " +
                                                   uuid + " comes twice, the second time from " + who);
      }
      merged[uuid] = handle;
    }
  }
  return merged;
}

}  // namespace

std::optional<EngineResult> push_slot(const SlotPush& push) {
  const bool leads = push.rank == push.slot.leader();
  std::optional<PushSession> session;
  if (leads) {
    VIME_CHECK(push.engine != nullptr, "the slot leader needs the engine's address");
    session.emplace(*push.engine, push.version);
    if (push.init_needed) session->init({{"backend", "shm"}});
    session->start();
  }
  const Json own = {{push.uuid, {{"handle", push.arena->handle()}, {"offset", 0}, {"bytes", push.arena->bytes()}}}};
  for (const Bucket& bucket : arena_buckets(push.tensors, push.buffer_bytes)) {
    const std::vector<std::string> handles = push.group->gather(own.dump());
    if (!leads) continue;
    session->attempt([&] {
      Json update_info = manifest_json(bucket);
      update_info["handles"] = merge_handles(handles, push.slot);
      push.engine->update_weights(update_info);
    });
  }
  if (!leads) return std::nullopt;
  session->finish();
  return EngineResult{push.slot.engine, session->error()};
}

}  // namespace vime::weights
