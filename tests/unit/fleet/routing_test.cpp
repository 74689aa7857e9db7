#include "fleet/routing.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

using namespace vime::fleet;

namespace {

std::vector<int64_t> groups(int count, int size) {
  std::vector<int64_t> sessions;
  for (int group = 0; group < count; ++group) sessions.insert(sessions.end(), static_cast<size_t>(size), group);
  return sessions;
}

}  // namespace

TEST_CASE("with room for all, engines get equally many jobs and every session stays together") {
  const std::vector<int64_t> sessions = groups(6, 4);
  Routing routing(sessions, 3, 512);
  std::map<size_t, int> jobs_of_engine;
  std::map<int64_t, std::set<size_t>> engines_of_session;
  std::set<size_t> sent;
  while (const auto job = routing.next()) {
    sent.insert(*job);
    ++jobs_of_engine[routing.engine_of(*job)];
    engines_of_session[sessions[*job]].insert(routing.engine_of(*job));
  }
  CHECK(sent.size() == sessions.size());
  for (const auto& [engine, jobs] : jobs_of_engine) CHECK(jobs == 8);
  for (const auto& [session, engines] : engines_of_session) CHECK(engines.size() == 1);
}

TEST_CASE("an engine has no more under way than it may have") {
  Routing routing(groups(4, 4), 2, 3);
  std::vector<size_t> under_way;
  while (const auto job = routing.next()) under_way.push_back(*job);
  CHECK(under_way.size() == 6);
  routing.done(under_way[0]);
  const auto next = routing.next();
  REQUIRE(next.has_value());
  CHECK(routing.engine_of(*next) == routing.engine_of(under_way[0]));
  CHECK_FALSE(routing.next().has_value());
}

TEST_CASE("an engine that has nothing left takes whole sessions from one that has, and none that has begun") {
  const std::vector<int64_t> sessions = groups(8, 2);
  Routing routing(sessions, 2, 2);
  std::map<int64_t, std::set<size_t>> engines_of_session;
  std::map<size_t, std::vector<size_t>> under_way;
  int done = 0, by_fast = 0;
  const auto send = [&] {
    while (const auto job = routing.next()) {
      under_way[routing.engine_of(*job)].push_back(*job);
      engines_of_session[sessions[*job]].insert(routing.engine_of(*job));
    }
  };
  // Engine 0 answers ten times as often.
  for (int round = 0; done < 16 && round < 1000; ++round) {
    send();
    const size_t engine = round % 10 == 9 ? 1 : 0;
    if (under_way[engine].empty()) continue;
    routing.done(under_way[engine].back());
    under_way[engine].pop_back();
    ++done;
    by_fast += engine == 0 ? 1 : 0;
  }
  CHECK(done == 16);
  CHECK(by_fast > 10);
  for (const auto& [session, engines] : engines_of_session) CHECK(engines.size() == 1);
}

TEST_CASE("no jobs, and one engine") {
  CHECK_FALSE(Routing({}, 2, 4).next().has_value());
  Routing one({7, 7, 9}, 1, 100);
  std::set<size_t> sent;
  while (const auto job = one.next()) sent.insert(*job);
  CHECK(sent == std::set<size_t>{0, 1, 2});
}
