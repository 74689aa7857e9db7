#include "fleet/routing.hpp"

#include <algorithm>
#include <map>

namespace vime::fleet {

Routing::Routing(const std::vector<int64_t>& sessions, std::size_t engines, int64_t concurrency)
    : concurrency_(concurrency), engines_(engines), engines_of_(sessions.size()) {
  std::map<int64_t, std::size_t> known;
  for (std::size_t job = 0; job < sessions.size(); ++job) {
    const auto [found, is_new] = known.emplace(sessions[job], sessions_.size());
    if (is_new) sessions_.emplace_back();
    sessions_[found->second].jobs.push_back(job);
  }
  for (std::size_t session = 0; session < sessions_.size(); ++session) {
    const auto emptiest = std::min_element(engines_.begin(), engines_.end(),
                                           [](const Engine& a, const Engine& b) { return a.waiting < b.waiting; });
    emptiest->sessions.push_back(session);
    emptiest->waiting += static_cast<int64_t>(sessions_[session].jobs.size());
    for (const std::size_t job : sessions_[session].jobs) {
      engines_of_[job] = static_cast<std::size_t>(emptiest - engines_.begin());
    }
  }
}

std::optional<std::size_t> Routing::next() {
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i].under_way >= concurrency_) continue;
    if (engines_[i].waiting == 0) take_over(i);
    if (engines_[i].waiting == 0) continue;
    if (!chosen || engines_[i].under_way < engines_[*chosen].under_way) chosen = i;
  }
  if (!chosen) return std::nullopt;
  Engine& engine = engines_[*chosen];
  Session& session = sessions_[engine.sessions.front()];
  const std::size_t job = session.jobs.front();
  session.jobs.pop_front();
  session.begun = true;
  if (session.jobs.empty()) engine.sessions.pop_front();
  --engine.waiting;
  ++engine.under_way;
  return job;
}

void Routing::done(std::size_t job) {
  --engines_[engines_of_[job]].under_way;
}

// The last session of the fullest engine that has not begun there; one that has stays where its prompt is known.
void Routing::take_over(std::size_t engine) {
  const auto fullest = std::max_element(engines_.begin(), engines_.end(),
                                        [](const Engine& a, const Engine& b) { return a.waiting < b.waiting; });
  if (fullest->sessions.empty() || sessions_[fullest->sessions.back()].begun) return;
  const std::size_t session = fullest->sessions.back();
  fullest->sessions.pop_back();
  const auto jobs = static_cast<int64_t>(sessions_[session].jobs.size());
  fullest->waiting -= jobs;
  engines_[engine].sessions.push_back(session);
  engines_[engine].waiting += jobs;
  for (const std::size_t job : sessions_[session].jobs) engines_of_[job] = engine;
}

}  // namespace vime::fleet
