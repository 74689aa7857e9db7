// A point in time that a wait may not pass, and the name of what is waited for.
#pragma once

#include <chrono>
#include <string>

namespace vime {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(milliseconds timeout) : timeout_(timeout), at_(SteadyClock::now() + timeout) {}

  milliseconds timeout() const { return timeout_; }
  SteadyClock::time_point at() const { return at_; }
  bool passed() const { return SteadyClock::now() >= at_; }
  // Never negative; rounded up, so that waiting for it does not spin.
  milliseconds remaining() const;
  // Throws Error{process_failed, "<waited for>: no answer within 30.0 s"} once passed.
  void check(const std::string& waited_for) const;

 private:
  milliseconds timeout_;
  SteadyClock::time_point at_;
};

// Seconds since `start`.
double seconds_since(SteadyClock::time_point start);
double seconds_between(SteadyClock::time_point start, SteadyClock::time_point end);
// Wall clock as "2026-11-29T14:02:11Z".
std::string utc_now();

}  // namespace vime
