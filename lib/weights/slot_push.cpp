#include "weights/slot_push.hpp"

#include <utility>

#include "base/error.hpp"

namespace vime::weights {
namespace {

// The ranks' places, one entry per UUID. A missing or doubled peer is refused: its engine worker would find nothing, or
// another device's memory.
std::map<std::string, Json> merge_places(const std::vector<std::string>& texts, const placement::Slot& slot) {
  if (static_cast<int>(texts.size()) != slot.count) {
    throw Error(ErrorKind::process_failed, "slot of engine " + std::to_string(slot.engine) + ": handles of " +
                                               std::to_string(texts.size()) + " ranks, expected " +
                                               std::to_string(slot.count) + " (ranks " + std::to_string(slot.start) +
                                               " to " + std::to_string(slot.start + slot.count - 1) + ")");
  }
  std::map<std::string, Json> merged;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string who = "rank " + std::to_string(slot.start + static_cast<int>(i));
    if (texts[i].empty()) {
      throw Error(ErrorKind::process_failed,
                  "slot of engine " + std::to_string(slot.engine) + ": no handle from " + who);
    }
    const Json places = parse_json(texts[i], "handle of " + who);
    for (const auto& [uuid, place] : places.items()) {
      if (merged.contains(uuid)) {
        throw Error(ErrorKind::process_failed, "slot of engine " + std::to_string(slot.engine) + ": device UUID " +
                                                   uuid + " comes twice, the second time from " + who);
      }
      merged[uuid] = place;
    }
  }
  return merged;
}

}  // namespace

SlotPush::SlotPush(SlotPushOptions options) : options_(std::move(options)) {
  if (options_.rank != options_.slot.leader()) return;
  VIME_CHECK(options_.engine != nullptr, "the slot leader needs the engine's address");
  session_.emplace(*options_.engine, options_.version);
}

void SlotPush::start() {
  if (!session_) return;
  if (options_.init_needed) {
    if (options_.sent != nullptr) options_.sent->forget();
    session_->attempt([&] {
      const EngineProtocol& protocol = session_->engine().protocol();
      session_->engine().init_weight_transfer(protocol.slot_init_info(options_.backend, options_.lifetime));
    });
  }
  session_->start();
}

void SlotPush::send(const Bucket& bucket, const SharedPlace& place) {
  begin(bucket, place);
  complete();
}

// own: this rank's places. The leader posts what is made of all ranks', by the UUIDs of their devices. Collective.
void SlotPush::post(const Json& own, const std::function<Json(const std::map<std::string, Json>&)>& update_info) {
  const std::vector<std::string> texts = options_.group->gather(Json{{options_.uuid, own}}.dump());
  if (!session_) return;
  session_->attempt(
      [&] { reply_ = session_->engine().send_update_weights(update_info(merge_places(texts, options_.slot))); });
}

void SlotPush::begin(const Bucket& bucket, const SharedPlace& place) {
  post(to_json(place), [&](const std::map<std::string, Json>& all) {
    std::map<std::string, SharedPlace> places;
    for (const auto& [uuid, json] : all) places[uuid] = parse_shared_place(json, "handle of " + uuid);
    return session_->engine().protocol().slot_update_info(bucket, places, options_.lifetime, options_.sent);
  });
}

void SlotPush::begin_shards(const Bucket& bucket, const ReplicaPlaces& replica) {
  VIME_CHECK(options_.lifetime == Lifetime::push, "shards are read where they lie");
  post(to_json(replica), [&](const std::map<std::string, Json>& all) {
    std::map<std::string, ReplicaPlaces> places;
    for (const auto& [uuid, json] : all) places[uuid] = parse_replica_places(json, "handles of " + uuid);
    return session_->engine().protocol().slot_shards_info(bucket, places, options_.sent);
  });
}

void SlotPush::complete() {
  if (reply_) {
    session_->attempt([&] {
      session_->engine().check(reply_->get());
      if (options_.sent != nullptr) options_.sent->arrived();
    });
    reply_.reset();
  }
  // Only the leader knows when the engine has answered; the others must not overwrite their memory before.
  if (options_.lifetime == Lifetime::bucket) options_.group->barrier();
}

std::optional<EngineResult> SlotPush::finish() {
  if (!session_) return std::nullopt;
  session_->begin_finish();
  return session_->finish();
}

}  // namespace vime::weights
