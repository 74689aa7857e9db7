#include "bench/rank_meeting.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::bench {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "an error of an unknown kind";
  }
}

}  // namespace

RankMeeting::RankMeeting(int ranks, milliseconds timeout)
    : timeout_(timeout), here_(static_cast<std::size_t>(ranks)), texts_(static_cast<std::size_t>(ranks)) {}

std::vector<std::string> RankMeeting::gather(int rank, const std::string& mine) {
  std::unique_lock lock(mutex_);
  texts_[static_cast<std::size_t>(rank)] = mine;
  come(lock, rank);
  std::vector<std::string> all = rank == 0 ? texts_ : std::vector<std::string>{};
  come(lock, rank);
  return all;
}

void RankMeeting::barrier(int rank) {
  std::unique_lock lock(mutex_);
  come(lock, rank);
}

void RankMeeting::come(std::unique_lock<std::mutex>& lock, int rank) {
  if (error_) throw Error(ErrorKind::process_failed, failure_);
  const uint64_t own = meetings_;
  here_[static_cast<std::size_t>(rank)] = true;
  if (std::find(here_.begin(), here_.end(), false) == here_.end()) {
    std::fill(here_.begin(), here_.end(), false);
    ++meetings_;
    changed_.notify_all();
    return;
  }
  const Deadline deadline(timeout_);
  changed_.wait_until(lock, deadline.at(), [&] { return meetings_ != own || error_; });
  if (meetings_ != own) return;
  if (error_) throw Error(ErrorKind::process_failed, failure_);
  const Error late(ErrorKind::process_failed, "meeting of the ranks: rank " + std::to_string(rank) + " waited " +
                                                  format_seconds(static_cast<double>(timeout_.count()) / 1000) +
                                                  " for " + absent());
  failure_ = late.what();
  error_ = std::make_exception_ptr(late);
  changed_.notify_all();
  throw late;
}

std::string RankMeeting::absent() const {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < here_.size(); ++rank) {
    if (!here_[rank]) ranks.push_back(std::to_string(rank));
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(ranks, ", ");
}

void RankMeeting::fail(int rank, std::exception_ptr reason) {
  const std::lock_guard lock(mutex_);
  if (error_) return;
  failure_ = "rank " + std::to_string(rank) + ": " + text_of(reason);
  error_ = std::move(reason);
  changed_.notify_all();
}

std::string RankMeeting::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RankMeeting::rethrow_failure() const {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) std::rethrow_exception(error);
}

void RankMeeting::reset() {
  const std::lock_guard lock(mutex_);
  std::fill(here_.begin(), here_.end(), false);
  failure_.clear();
  error_ = nullptr;
}

}  // namespace vime::bench
