#include "engine/core.hpp"

#include <exception>
#include <utility>

#include "base/log.hpp"

namespace vime::engine {
namespace {

const char* unusable_reason(Weights weights) {
  switch (weights) {
    case Weights::absent:
      return "this engine has no weights: they were never pushed";
    case Weights::incomplete:
      return "the weights are incomplete: a weight update failed and no whole one followed";
    case Weights::dropped:
      return "the weights were dropped by /sleep level 2 and not pushed since";
    case Weights::complete:
      return "";
  }
  return "";
}

}  // namespace

EngineCore::EngineCore(Executor& executor, CoreOptions options)
    : executor_(executor),
      options_(std::move(options)),
      scheduler_({executor.max_slots(), executor.max_batch_rows(), executor.max_model_len()}, options_.eos_ids,
                 options_.seed),
      transfer_(options_.weights_loaded) {}

bool EngineCore::may_run() const {
  return !failed_ && !paused_ && !asleep_.weights && !asleep_.kv_cache && !asleep_.scheduling && transfer_.usable();
}

void EngineCore::fail(const std::string& reason) {
  if (failed_) return;
  failed_ = true;
  failure_ = reason;
  log::error("engine", "the engine has failed: " + reason);
  scheduler_.fail_all(reason);
  for (auto& then : std::exchange(after_drain_, {})) then();
}

// Runs a call to the workers. A worker that is gone fails the engine; any other error is the caller's to hear about.
Verdict EngineCore::guarded(const std::string& what, bool spoils_weights, const std::function<void()>& action) {
  if (failed_) return {500, "the engine has failed: " + failure_};
  std::string reason;
  bool fatal = false;
  try {
    action();
    return {};
  } catch (const Error& error) {
    reason = what + ": " + error.what();
    fatal = error.kind() == ErrorKind::process_failed;
  } catch (const std::exception& error) {
    reason = what + ": " + error.what();
  }
  log::error("engine", reason);
  if (spoils_weights) {
    transfer_.failed();
    scheduler_.fail_all(reason);
  }
  if (fatal) fail(reason);
  return {500, reason};
}

Verdict EngineCore::submit(std::vector<Generation> generations, std::vector<uint64_t>* numbers) {
  if (failed_) return {500, "the engine has failed: " + failure_};
  const Weights weights = transfer_.weights();
  // While an engine that was slept waits for its push, requests wait as they do in any pause.
  const bool waiting_for_push = weights == Weights::dropped && is_sleeping();
  if (weights != Weights::complete && !waiting_for_push) return {409, unusable_reason(weights)};
  for (Generation& generation : generations) {
    const uint64_t number = scheduler_.add(std::move(generation));
    if (numbers != nullptr) numbers->push_back(number);
  }
  return {};
}

void EngineCore::abandon(const std::vector<uint64_t>& numbers) {
  scheduler_.abort(numbers);
  finish_draining();
}

int64_t EngineCore::abort_ids(const std::vector<std::string>& ids) {
  const int64_t count = scheduler_.abort_ids(ids);
  finish_draining();
  return count;
}

int64_t EngineCore::abort_all() {
  const int64_t count = scheduler_.abort_all();
  finish_draining();
  return count;
}

void EngineCore::finish_draining() {
  if (after_drain_.empty() || scheduler_.counts().running > 0) return;
  for (auto& then : std::exchange(after_drain_, {})) then();
}

void EngineCore::quiesce(PauseMode mode, bool drop_kv, std::function<void()> then) {
  switch (mode) {
    case PauseMode::abort:
      scheduler_.abort_all();
      break;
    case PauseMode::wait:
      break;
    case PauseMode::keep:
      // A pause that waits for running sequences would wait for ever once stepping stops.
      if (drop_kv || !after_drain_.empty()) scheduler_.preempt_running();
      then();
      finish_draining();
      return;
  }
  after_drain_.push_back(std::move(then));
  // Running sequences that cannot step now (an engine paused with `keep`, say) would never drain.
  if (mode == PauseMode::wait && !may_run()) scheduler_.preempt_running();
  finish_draining();
}

void EngineCore::pause(PauseMode mode, bool clear_cache, Done done) {
  if (failed_) return done({500, "the engine has failed: " + failure_});
  quiesce(mode, clear_cache, [this, done = std::move(done)] {
    if (failed_) return done({500, "the engine has failed: " + failure_});
    paused_ = true;
    done({});
  });
}

Verdict EngineCore::resume() {
  if (failed_) return {500, "the engine has failed: " + failure_};
  if (!after_drain_.empty()) return {500, "resume called while a pause still waits for running requests."};
  if (transfer_.active()) {
    return {409, "resume refused: a weight update is active. Call finish_weight_update first."};
  }
  const Weights weights = transfer_.weights();
  if (weights == Weights::incomplete || weights == Weights::dropped) {
    return {409, std::string("resume refused: ") + unusable_reason(weights)};
  }
  paused_ = false;
  if (!asleep_.weights && !asleep_.kv_cache) asleep_.scheduling = false;
  return {};
}

void EngineCore::put_to_sleep(int level, const Done& done) {
  if (level == 0 && !failed_) {
    asleep_.scheduling = true;
    return done({});
  }
  const Verdict verdict = guarded("sleep", true, [&] { executor_.sleep(level); });
  if (!verdict.ok()) return done(verdict);
  asleep_ = {true, true, true};
  if (level >= 2) transfer_.dropped();
  done({});
}

void EngineCore::sleep(int level, PauseMode mode, Done done) {
  if (failed_) return done({500, "the engine has failed: " + failure_});
  if (transfer_.active())
    return done({409, "sleep refused: a weight update is active. Call finish_weight_update first."});
  quiesce(mode, level >= 1, [this, level, done = std::move(done)] { put_to_sleep(level, done); });
}

Verdict EngineCore::wake(Parts parts) {
  if (failed_) return {500, "the engine has failed: " + failure_};
  const bool weights = parts.weights && asleep_.weights;
  const bool kv_cache = parts.kv_cache && asleep_.kv_cache;
  if (weights || kv_cache) {
    const Verdict verdict = guarded("wake_up", false, [&] { executor_.wake(weights, kv_cache); });
    if (!verdict.ok()) return verdict;
  }
  if (weights) asleep_.weights = false;
  if (kv_cache) asleep_.kv_cache = false;
  // Scheduling goes on when nothing sleeps any more; it may be woken alone only after level 0.
  if (!asleep_.weights && !asleep_.kv_cache && (parts.weights || parts.kv_cache || parts.scheduling))
    asleep_.scheduling = false;
  return {};
}

// The parameters are in pieces from start to finish, so nothing may run meanwhile.
Verdict EngineCore::quiet_verdict(const std::string& action) const {
  const SchedulerCounts counts = scheduler_.counts();
  if (!after_drain_.empty())
    return {409,
            action + " refused: a pause still waits for " + std::to_string(counts.running) + " running sequences."};
  if (asleep_.weights) return {409, action + " refused: the weights are asleep. Call /wake_up?tags=weights first."};
  if (!is_paused() && counts.requests > 0) {
    return {409, action + " refused: " + std::to_string(counts.requests) +
                     " requests are in flight and the engine is not paused. Call /pause first."};
  }
  return {};
}

Verdict EngineCore::init_transfer(const Json& init_info) {
  if (const std::string error = transfer_.may_init(); !error.empty()) return {500, error};
  const Verdict verdict = guarded("init_weight_transfer_engine", false, [&] { executor_.init_transfer(init_info); });
  if (verdict.ok()) transfer_.initialized();
  return verdict;
}

Verdict EngineCore::start_update() {
  if (const std::string error = transfer_.may_start(); !error.empty()) return {500, error};
  if (const Verdict quiet = quiet_verdict("start_weight_update"); !quiet.ok()) return quiet;
  const Verdict verdict = guarded("start_weight_update", true, [&] { executor_.start_update(); });
  if (verdict.ok()) transfer_.started();
  return verdict;
}

Verdict EngineCore::update(const Json& update_info) {
  if (const std::string error = transfer_.may_update(); !error.empty()) return {500, error};
  return guarded("update_weights", true, [&] { executor_.update(update_info); });
}

Verdict EngineCore::finish_update(const std::string& version) {
  if (const std::string error = transfer_.may_finish(); !error.empty()) return {500, error};
  const Verdict verdict = guarded("finish_weight_update", true, [&] { executor_.finish_update(); });
  if (verdict.ok()) transfer_.finished(version);
  return verdict;
}

Verdict EngineCore::set_version(const std::string& version) {
  if (transfer_.active())
    return {409, "update_weight_version refused: a weight update is active; give the version to finish_weight_update."};
  if (transfer_.weights() != Weights::complete) {
    return {409, std::string("update_weight_version refused: ") + unusable_reason(transfer_.weights())};
  }
  transfer_.set_version(version);
  return {};
}

Verdict EngineCore::checksums(std::map<std::string, uint64_t>& sums) {
  if (asleep_.weights)
    return {409, "weight_checker refused: the weights are asleep. Call /wake_up?tags=weights first."};
  if (transfer_.active())
    return {409, "weight_checker refused: a weight update is active. Call finish_weight_update first."};
  if (transfer_.weights() != Weights::complete) {
    return {409, std::string("weight_checker refused: ") + unusable_reason(transfer_.weights())};
  }
  return guarded("weight_checker", false, [&] { sums = executor_.checksums(); });
}

Verdict EngineCore::reload(const std::string& model_dir) {
  if (transfer_.active())
    return {409, "reload_weights refused: a weight update is active. Call finish_weight_update first."};
  if (const Verdict quiet = quiet_verdict("reload_weights"); !quiet.ok()) return quiet;
  const std::string folder = model_dir.empty() ? options_.model_dir : model_dir;
  const Verdict verdict = guarded("reload_weights", true, [&] { executor_.reload(folder); });
  if (verdict.ok()) transfer_.reloaded();
  return verdict;
}

void EngineCore::preempt_running() {
  scheduler_.preempt_running();
  finish_draining();
}

void EngineCore::shut_down() {
  if (failed_) return;
  failed_ = true;
  failure_ = "the engine is shutting down";
  scheduler_.fail_all(failure_);
  for (auto& then : std::exchange(after_drain_, {})) then();
}

bool EngineCore::step() {
  if (!may_run()) return false;
  const Batch batch = scheduler_.next_batch(after_drain_.empty());
  if (batch.rows.empty()) return false;
  std::vector<Sampled> sampled;
  try {
    sampled = executor_.step(batch);
    scheduler_.accept(sampled, transfer_.version());
  } catch (const std::exception& error) {
    fail(std::string("generate: ") + error.what());
    return false;
  }
  finish_draining();
  return true;
}

}  // namespace vime::engine
