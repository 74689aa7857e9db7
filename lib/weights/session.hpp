// One push into one engine: init (once per engine lifetime), start, updates, finish. The version is given when the
// session is made, so no transport can forget it; finish carries it, because only finish knows that every update has
// arrived. The first error is kept and every later call does nothing: the owner goes on with its collectives and asks
// at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <string>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "weights/engine_client.hpp"

namespace vime::weights {

// What became of the push into one engine, and what it took, in seconds.
struct EngineResult {
  int engine = 0;
  std::string error;      // "" = good
  double start_s = 0.0;   // with the making of the channel, in an engine's first push
  double update_s = 0.0;  // all updates
  double finish_s = 0.0;
};

class PushSession {
 public:
  PushSession(EngineClient& engine, int64_t version) : engine_(engine), version_(version) {}

  void start() {
    attempt([&] { engine_.start_weight_update(); });
    started();
  }
  // For an owner that sends start itself: when it has been answered.
  void started() { started_ = SteadyClock::now(); }
  // finish() hears the answer. Not sent after any failure: an engine that misses a bucket must not take the version.
  void begin_finish() {
    updated_ = SteadyClock::now();
    attempt([&] { finishing_ = engine_.send_finish_weight_update(version_); });
  }
  EngineResult finish() {
    attempt([&] { engine_.check(finishing_.get()); });
    return {engine_.address().id, error_, seconds_between(made_, started_), seconds_between(started_, updated_),
            seconds_since(updated_)};
  }
  void attempt(const std::function<void()>& step) {
    if (failed()) return;
    try {
      step();
    } catch (const std::exception& error) {  // whatever it is: the owner's peers wait for it
      error_ = error.what();
    }
  }
  void fail(const std::string& reason) {
    if (!failed()) error_ = reason;
  }

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  int64_t version() const { return version_; }
  EngineClient& engine() { return engine_; }

 private:
  EngineClient& engine_;
  int64_t version_;
  std::string error_;
  std::future<http::Outcome> finishing_;
  SteadyClock::time_point made_ = SteadyClock::now(), started_ = made_, updated_ = made_;
};

}  // namespace vime::weights
