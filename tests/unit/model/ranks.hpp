// Runs the ranks of a group as threads of the test and rethrows what a rank threw.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "model/rank_group.hpp"

namespace vime::model {

// What each rank threw; null where it returned.
inline std::vector<std::exception_ptr> errors_of_ranks(int size,
                                                       const std::function<void(std::shared_ptr<RankGroup>)>& body,
                                                       milliseconds timeout = milliseconds(30'000)) {
  MeetingPoint point;
  const uint16_t port = point.port();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const Membership membership{"test", rank, size, "secret", timeout};
        body(rank == 0 ? RankGroup::host(std::move(point), membership)
                       : RankGroup::join("127.0.0.1", port, membership));
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void run_ranks(int size, const std::function<void(std::shared_ptr<RankGroup>)>& body) {
  for (const std::exception_ptr& error : errors_of_ranks(size, body)) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace vime::model
