// The state machine of a weight update, with the texts of vLLM 0.25 and later (clients match on their substrings), and
// what the weights are worth. A plain value; the engine thread owns it. Every method returns "" when the step is
// allowed, or the reason why it is not.
//
//   init -> start -> update x N -> finish(version) -> start ...
//
// As in vLLM, init may be repeated between sessions, start needs no init, and an error between start and finish clears
// the active flag. Beyond vLLM: such an error leaves the weights `incomplete`. Then nothing is generated and /resume is
// refused until a whole session (start, every parameter, finish) or a reload has succeeded; the version stays what it
// was, as it names the contents that are gone.
#pragma once

#include <string>

namespace vime::engine {

enum class Weights {
  absent,  // never loaded or pushed
  complete,
  incomplete,  // an update failed half-way
  dropped,     // slept at level 2
};

class TransferState {
 public:
  explicit TransferState(bool loaded) : weights_(loaded ? Weights::complete : Weights::absent) {}

  std::string may_init() const {
    return active_
               ? "init_weight_transfer_engine called while a weight update is active. Call finish_weight_update first."
               : "";
  }
  void initialized() { initialized_ = true; }

  std::string may_start() const {
    return active_
               ? "start_weight_update called while a weight update is already active. Call finish_weight_update first."
               : "";
  }
  void started() { active_ = true; }

  std::string may_update() const {
    if (!active_) return "start_weight_update must be called before update_weights.";
    if (!initialized_) return "Embedded weight transfer not initialized. Call init_transfer_engine() first.";
    return "";
  }
  std::string may_finish() const {
    return active_ ? "" : "finish_weight_update called without a matching start_weight_update.";
  }
  // Only after the workers have finished; an empty version keeps the present one.
  void finished(const std::string& version) {
    active_ = false;
    weights_ = Weights::complete;
    if (!version.empty()) version_ = version;
  }
  // start, update or finish threw.
  void failed() {
    active_ = false;
    weights_ = Weights::incomplete;
  }
  void reloaded() { weights_ = Weights::complete; }
  void dropped() { weights_ = Weights::dropped; }
  void set_version(const std::string& version) { version_ = version; }

  bool active() const { return active_; }
  Weights weights() const { return weights_; }
  const std::string& version() const { return version_; }
  // Whether a forward pass may run now.
  bool usable() const { return weights_ == Weights::complete && !active_; }

 private:
  bool initialized_ = false;
  bool active_ = false;
  Weights weights_;
  std::string version_ = "default";
};

}  // namespace vime::engine
