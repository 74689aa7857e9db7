#include "weights/slot_push.hpp"

#include <utility>

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

SlotPush::SlotPush(SlotPushOptions options) : options_(std::move(options)) {
  if (options_.rank != options_.slot.leader()) return;
  VIME_CHECK(options_.engine != nullptr, "the slot leader needs the engine's address");
  session_.emplace(*options_.engine, options_.version);
}

void SlotPush::start() {
  if (!session_) return;
  if (options_.init_needed) {
    if (options_.sent != nullptr) options_.sent->forget();
    session_->init({{"backend", options_.backend}});
  }
  session_->start();
}

void SlotPush::send(const Bucket& bucket, const std::string& handle, uint64_t offset, uint64_t bytes,
                    Lifetime lifetime) {
  begin(bucket, handle, offset, bytes);
  complete(lifetime);
}

void SlotPush::begin(const Bucket& bucket, const std::string& handle, uint64_t offset, uint64_t bytes) {
  const Json own = {{options_.uuid, {{"handle", handle}, {"offset", offset}, {"bytes", bytes}}}};
  const std::vector<std::string> handles = options_.group->gather(own.dump());
  if (!session_) return;
  session_->attempt([&] {
    Json update_info = options_.sent == nullptr ? manifest_json(bucket) : options_.sent->update_info({&bucket, 1});
    update_info["handles"] = merge_handles(handles, options_.slot);
    reply_ = session_->engine().send_update_weights(update_info);
  });
}

void SlotPush::complete(Lifetime lifetime) {
  if (reply_) {
    session_->attempt([&] {
      session_->engine().check(reply_->get());
      if (options_.sent != nullptr) options_.sent->arrived();
    });
    reply_.reset();
  }
  // Only the leader knows when the engine has answered; the others must not overwrite their memory before.
  if (lifetime == Lifetime::bucket) options_.group->barrier();
}

std::optional<EngineResult> SlotPush::finish() {
  if (!session_) return std::nullopt;
  session_->finish();
  return EngineResult{options_.slot.engine, session_->error()};
}

}  // namespace vime::weights
