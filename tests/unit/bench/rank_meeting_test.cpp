#include "bench/rank_meeting.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <future>
#include <stdexcept>

#include "base/error.hpp"

namespace vime::bench::test {
namespace {

using Texts = std::vector<std::string>;

// What came of each rank's step: "" or its error.
Texts on_ranks(int ranks, const std::function<void(int)>& step) {
  std::vector<std::future<std::string>> running;
  for (int rank = 0; rank < ranks; ++rank) {
    running.push_back(std::async(std::launch::async, [&step, rank]() -> std::string {
      try {
        step(rank);
        return "";
      } catch (const Error& error) {
        return error.message();
      }
    }));
  }
  Texts outcomes;
  for (std::future<std::string>& outcome : running) outcomes.push_back(outcome.get());
  return outcomes;
}

}  // namespace

TEST_CASE("the first rank gets every rank's text of every round") {
  RankMeeting meeting(3, milliseconds(20'000));
  const Texts outcomes = on_ranks(3, [&](int rank) {
    for (int round = 0; round < 50; ++round) {
      const auto text = [&](int of) { return std::to_string(of) + ":" + std::to_string(round); };
      const Texts all = meeting.gather(rank, text(rank));
      if (all != (rank == 0 ? Texts{text(0), text(1), text(2)} : Texts{})) throw Error(ErrorKind::internal, "mixed");
      meeting.barrier(rank);
    }
  });
  CHECK(outcomes == Texts{"", "", ""});
  meeting.rethrow_failure();
  CHECK(meeting.failure() == "");
}

TEST_CASE("ranks that do not come are named when the time is up, and whoever comes later is told at once") {
  RankMeeting meeting(3, milliseconds(50));
  const std::string late = "meeting of the ranks: rank 0 waited 50 ms for ranks 1, 2";
  CHECK(on_ranks(1, [&](int rank) { meeting.barrier(rank); }) == Texts{late});
  CHECK_THROWS_WITH_AS(meeting.gather(1, "here"), late.c_str(), Error);
  CHECK_THROWS_WITH_AS(meeting.gather(2, "here"), late.c_str(), Error);
  CHECK_THROWS_WITH_AS(meeting.rethrow_failure(), late.c_str(), Error);
}

TEST_CASE("when a rank has failed the others do not wait for it, and after a reset they meet again") {
  RankMeeting meeting(3, milliseconds(600'000));  // the test's own limit is shorter
  const auto fail = [&](int rank) { meeting.fail(rank, std::make_exception_ptr(std::out_of_range("memory"))); };
  const Texts told = on_ranks(3, [&](int rank) {
    if (rank == 1) return fail(rank);
    meeting.barrier(rank);
  });
  CHECK(told == Texts{"rank 1: memory", "", "rank 1: memory"});
  CHECK_THROWS_AS(meeting.rethrow_failure(), std::out_of_range);  // its own error
  fail(2);
  CHECK(meeting.failure() == "rank 1: memory");  // the first counts
  meeting.reset();
  CHECK(meeting.failure() == "");
  CHECK(on_ranks(3, [&](int rank) { meeting.barrier(rank); }) == Texts{"", "", ""});
}

}  // namespace vime::bench::test
