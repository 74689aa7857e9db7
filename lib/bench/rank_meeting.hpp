// Where the threads that stand for the ranks of a slot meet. Nobody waits longer than the timeout, and when one of them
// has failed the others learn of it at once. Every thread is one rank.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"

namespace vime::bench {

class RankMeeting {
 public:
  RankMeeting(int ranks, milliseconds timeout);

  // Rank 0 gets every rank's text in rank order, the others get {}. Both calls return when all ranks have come.
  // Error{process_failed} naming the ranks that did not come in time, or saying what the one that failed said.
  std::vector<std::string> gather(int rank, const std::string& mine);
  void barrier(int rank);

  // For a rank that comes no more. The first failure counts.
  void fail(int rank, std::exception_ptr reason);
  std::string failure() const;   // of the first that failed: "rank 1: out of memory"; "" when none has
  void rethrow_failure() const;  // likewise, its own error; nothing when none has
  void reset();                  // forgets a failure. No rank is here meanwhile

 private:
  void come(std::unique_lock<std::mutex>& lock, int rank);
  std::string absent() const;

  milliseconds timeout_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<bool> here_;
  uint64_t meetings_ = 0;  // that all ranks came to
  std::vector<std::string> texts_;
  std::string failure_;
  std::exception_ptr error_;
};

}  // namespace vime::bench
