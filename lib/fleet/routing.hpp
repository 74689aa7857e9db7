// Which engine gets which job, and when. Jobs of a session go together: sessions are dealt out one by one, each to the
// engine that then has the fewest jobs. An engine with room that has nothing left takes whole sessions from the one
// with the most jobs waiting. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace vime::fleet {

class Routing {
 public:
  // sessions: of each job. concurrency: most jobs under way at an engine.
  Routing(const std::vector<int64_t>& sessions, std::size_t engines, int64_t concurrency);

  // The next job to be sent, if an engine has room for one. Engines take turns, the emptiest first.
  std::optional<std::size_t> next();
  void done(std::size_t job);
  // Of a job that has not been sent this may still change.
  std::size_t engine_of(std::size_t job) const { return engines_of_[job]; }

 private:
  struct Session {
    std::deque<std::size_t> jobs;  // not sent yet
    bool begun = false;
  };
  struct Engine {
    std::deque<std::size_t> sessions;  // with jobs that wait, in order
    int64_t waiting = 0;
    int64_t under_way = 0;
  };
  void take_over(std::size_t engine);

  int64_t concurrency_;
  std::vector<Session> sessions_;
  std::vector<Engine> engines_;
  std::vector<std::size_t> engines_of_;  // of jobs
};

}  // namespace vime::fleet
