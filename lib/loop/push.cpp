#include "loop/push.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::loop {
namespace {

// Every engine must be in exactly one rank's results, without an error.
void require_all_engines(const std::vector<Json>& replies, int engines) {
  std::vector<int> seen(static_cast<size_t>(engines), 0);
  std::vector<std::string> problems;
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /push";
    for (const Json& result : json_member(replies[rank], "results", what)) {
      const auto engine = json_int(result, "engine", what);
      VIME_CHECK(engine >= 0 && engine < engines, "engine " + std::to_string(engine));
      ++seen[static_cast<size_t>(engine)];
      const std::string error = json_string(result, "error", what);
      if (!error.empty()) problems.push_back("push by trainer rank " + std::to_string(rank) + ": " + error);
    }
  }
  for (int engine = 0; engine < engines; ++engine) {
    const int times = seen[static_cast<size_t>(engine)];
    if (times != 1) {
      problems.push_back("engine " + std::to_string(engine) + " was pushed by " + std::to_string(times) +
                         " ranks, expected one");
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::process_failed, join(problems, "\n"));
}

}  // namespace

WeightPush::WeightPush(fleet::Fleet& fleet, TrainerGroup& trainers, weights::VersionLedger ledger,
                       bool compare_contents)
    : fleet_(fleet), trainers_(trainers), ledger_(ledger), compare_contents_(compare_contents) {}

PushReport WeightPush::run() {
  PushReport report;
  report.version = ledger_.take_candidate();
  Json engines = Json::array();
  for (int id = 0; id < fleet_.size(); ++id) {
    const weights::EngineAddress& address = fleet_.engine(id).address();
    engines.push_back(
        {{"id", id}, {"url", address.url}, {"token", address.token}, {"init", !initialised_.contains(id)}});
  }
  trainers_.call_all("/prepare_push", Json::object());
  const auto start = SteadyClock::now();
  fleet_.pause_all();
  const std::vector<Json> replies = trainers_.call_all(
      "/push", {{"version", report.version}, {"engines", engines}, {"checksums", compare_contents_}});
  require_all_engines(replies, fleet_.size());
  for (int id = 0; id < fleet_.size(); ++id) initialised_.insert(id);

  const std::vector<std::string> problems = weights::version_problems(report.version, fleet_.versions());
  if (!problems.empty()) throw Error(ErrorKind::check_failed, join(problems, "\n"));
  if (compare_contents_) compare(replies);
  ledger_.commit(report.version);
  fleet_.resume_all();
  report.pause_s = seconds_since(start);
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /push";
    report.prepare_s = std::max(report.prepare_s, json_number(replies[rank], "prepare_s", what));
    report.extra_bytes += static_cast<uint64_t>(json_int(replies[rank], "extra_bytes", what));
  }
  return report;
}

// What the ranks of one replica hold adds up to the whole model; replicas, and the copies of a part that ranks of one
// replica hold, must be equal among themselves as well.
void WeightPush::compare(const std::vector<Json>& replies) {
  using Sums = std::map<std::string, uint64_t>;
  std::map<std::pair<std::string, int64_t>, Sums> trainers;  // by replica and copy
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /push";
    const std::string replica = json_string(replies[rank], "replica", what);
    for (const Json& part : json_member(replies[rank], "parts", what)) {
      trainers[{replica, json_int(part, "copy", what)}][json_string(part, "name", what)] +=
          weights::parse_checksum(json_string(part, "sum", what), what + ": sum");
    }
  }
  const std::string first = json_string(replies.front(), "replica", "trainer rank 0: /push");
  const Sums& expected = trainers.at({first, 0});
  std::vector<std::string> problems;
  const auto hold = [&](const std::string& name, const Sums& sums, bool whole) {
    Sums wanted = expected;
    if (!whole) std::erase_if(wanted, [&](const auto& entry) { return !sums.contains(entry.first); });
    for (std::string& problem : weights::checksum_problems(wanted, {{name, sums}}))
      problems.push_back(std::move(problem));
  };
  for (const auto& [place, sums] : trainers) {
    const auto& [replica, copy] = place;
    hold("trainer (" + replica + (copy > 0 ? ", copy " + std::to_string(copy) + ")" : ")"), sums, copy == 0);
  }
  for (int id = 0; id < fleet_.size(); ++id) {
    hold("engine " + std::to_string(id), fleet_.engine(id).checksums(), true);
  }
  if (!problems.empty()) {
    throw Error(ErrorKind::check_failed,
                "contents of version " + std::to_string(ledger_.ever_sent()) + " differ: " + join(problems, "\n"));
  }
}

}  // namespace vime::loop
