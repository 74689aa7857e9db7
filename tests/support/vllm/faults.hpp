// Faults that a test plants with VIME_STAND_IN_FAULT: "PHASE[:N]=ACTION", several with commas between. N is the call of
// that phase, from 1; without it every call is meant.
//
//   PHASE   a route's name without its slashes (init_weight_transfer_engine, update_weights, v1/completions, pause,
//   ...)
//           or one of the short names init, start, update, finish, generate (both generating routes), reload; startup;
//           load: the weights that a finish or a reload brings
//   ACTION  400..599  that status; in a weight phase a worker raises, so that the session is left as vLLM leaves it
//           hang      no answer while the client waits; startup: never healthy
//           half      the call is carried out, half of the answer's body is sent and the connection closed
//           reset     the connection is reset, nothing is carried out
//           death     the process kills itself; startup: it ends with a traceback and status 1
//           abort, abort_at_once   (generating routes) somebody aborts the request after its first token, or before it
//           stale, half, swapped_rows (phase load)   all weights are kept as they were, every second tensor is lost, or
//                     the halves of the gate matrices trade places; the new version is claimed all the same
//
// Any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace vime::stand_in {

struct Fault {
  std::string phase;
  int call = 0;  // 0: every one
  std::string action;
};

class Faults {
 public:
  // Error{refused} for text of another form.
  explicit Faults(const std::string& text);

  // Counts a call of the phase and says what is planted for it.
  std::optional<std::string> next(const std::string& phase);

 private:
  std::vector<Fault> faults_;
  std::mutex mutex_;
  std::map<std::string, int> calls_;
};

// The short name of a route's phase, or the path without its first slash.
std::string phase_of(const std::string& path);

}  // namespace vime::stand_in
