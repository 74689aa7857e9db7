// The rewards of a run: built-ins, the user's command, or a service, behind one queue. Samples are scored one by one
// unless `group` asks otherwise, so that a slow one holds nobody back; a group is delivered when all of its own have
// their scores. All calls come from one thread, and results are delivered on it, from within poll() and finish().
// Nothing but finish() blocks; groups that are not delivered when the object goes are dropped. The command's processes
// are started and ended through WorkerLauncher and are told to end by the destructor; what their end means is
// answer.hpp's and command.cpp's business.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "proc/agent.hpp"
#include "reward/score.hpp"

namespace vime::reward {

struct RewardOptions {
  std::string type = "exact_match";  // a built-in's name, "command" or "http"
  std::string pattern;               // regex: the expression; "" = the label is it
  bool group = false;                // command and http: a prompt's samples go out in one call
  std::string reward_key = "reward";
  // For each call: of a command from when the worker gets the line; of a service over all attempts, waits included,
  // from the first. One attempt gets at most half of it.
  milliseconds timeout{60000};
  int concurrency = 0;  // calls at once: of one worker (0 = 1), of the service (0 = 64)

  std::vector<std::string> command;  // the program and its arguments; never a shell
  int num_workers = 4;
  milliseconds startup_timeout{60000};  // added to the timeout of the first call of a fresh worker
  int max_restarts = 1000;              // of each worker over the run
  std::string role = "reward";          // workers are "<role>-0", "<role>-1", ...
  std::string log_folder;               // stderr of worker i goes to <log_folder>/<role>-<i>.log
  std::string cwd;                      // "" = the caller's

  std::string url;
  int max_retries = 5;              // further attempts after a lost connection, a timeout, 429 and 5xx
  milliseconds retry_backoff{500};  // before the first; doubled each time up to 30 s; half of it is jitter
};

// Starts and ends the command's processes. fleet::Supervisor has both functions; `on_end` is told the exit or the
// failed start once, from the same thread, when the process's whole tree has gone.
struct WorkerLauncher {
  std::function<void(const proc::Command&, std::function<void(const proc::Event&)> on_end)> start;
  std::function<void(const std::string& role, milliseconds grace)> stop;
};

struct RewardCounters {
  Tally tally;              // of all samples delivered
  int64_t retries = 0;      // calls made again
  int64_t worker_ends = 0;  // workers that died, hung or broke the protocol
  int64_t late = 0;         // calls that were over their deadline
};

class Rewards {
 public:
  // Error{refused} for options that cannot be; starts the command's workers.
  explicit Rewards(const RewardOptions& options, WorkerLauncher launcher = {});
  ~Rewards();
  Rewards(const Rewards&) = delete;
  Rewards& operator=(const Rewards&) = delete;

  // One group in, its scores out, in order. `done` comes from a later poll() or finish(), never from here; it may
  // submit. Error{refused} when a sample's own type is neither a built-in nor the run's.
  void submit(std::vector<ScoreItem> group, std::function<void(std::vector<Score>)> done);
  // Delivers what is ready. Error{process_failed} when the command cannot be kept alive: the run's end.
  void poll();
  // Until every group is delivered. `check` is called at least every 50 ms and ends the wait by throwing; it must let
  // the launcher's events through. What is open at the deadline gets no number (Missing::timeout).
  void finish(Deadline deadline, const std::function<void()>& check);
  size_t pending() const;  // groups not delivered yet
  RewardCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The options' own faults: "reward.num_workers: expected 1 to 1024, found 0". Error{refused}.
void check_options(const RewardOptions& options);

}  // namespace vime::reward
