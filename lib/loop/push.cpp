#include "loop/push.hpp"

#include <algorithm>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"

namespace vime::loop {
namespace {

// What the ranks say of their part, each figure the slowest's.
void add_figures(const std::vector<Json>& replies, PushReport& report) {
  double slowest = 0.0;
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    const std::string what = "trainer rank " + std::to_string(rank) + ": /push";
    slowest = std::max(slowest, json_number(replies[rank], "prepare_s", what));
    report.extra_bytes += static_cast<uint64_t>(json_int(replies[rank], "extra_bytes", what));
    for (const Json& result : json_member(replies[rank], "results", what)) {
      report.start_s = std::max(report.start_s, json_number(result, "start_s", what));
      report.update_s = std::max(report.update_s, json_number(result, "update_s", what));
      report.finish_s = std::max(report.finish_s, json_number(result, "finish_s", what));
    }
  }
  report.prepare_s += slowest;
}

}  // namespace

WeightPush::WeightPush(fleet::Fleet& fleet, TrainerGroup& trainers, weights::VersionLedger ledger, PushOptions options)
    : fleet_(fleet),
      trainers_(trainers),
      ledger_(ledger),
      options_(std::move(options)),
      folders_(any_folders() ? options_.disk_dir : fs::path()),
      probe_(fleet, trainers, options_.probe) {}

bool WeightPush::takes_folder(int engine) const {
  return !options_.from_disk.empty() && options_.from_disk.at(static_cast<size_t>(engine));
}

bool WeightPush::any_folders() const {
  return std::find(options_.from_disk.begin(), options_.from_disk.end(), true) != options_.from_disk.end();
}

// Every engine that loads from no folder must be in exactly one rank's results, without an error.
void WeightPush::require_all_engines(const std::vector<Json>& replies) const {
  const int engines = fleet_.size();
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
    const int expected = takes_folder(engine) ? 0 : 1;
    if (times != expected) {
      problems.push_back("engine " + std::to_string(engine) + " was pushed by " + std::to_string(times) +
                         " ranks, expected " + (expected == 1 ? "one" : "none"));
    }
  }
  if (!problems.empty()) fleet_.explain(Error(ErrorKind::process_failed, join(problems, "\n")));
}

// At the same time, since each reads the whole model. An engine that failed in the middle holds nothing that could be
// used: the error ends the run, and it stays paused.
void WeightPush::load_from(const fs::path& folder, int64_t version) {
  std::vector<std::pair<int, std::future<http::Outcome>>> loading;
  for (int id = 0; id < fleet_.size(); ++id) {
    if (!takes_folder(id)) continue;
    fleet_.engine(id).prepare_reload(!initialised_.contains(id));
    loading.emplace_back(id, fleet_.engine(id).send_reload_weights(folder.string()));
  }
  std::vector<std::string> problems;
  for (auto& [id, reply] : loading) {
    try {
      fleet_.engine(id).check(reply.get());
      fleet_.engine(id).publish_version(version);
    } catch (const Error& error) {
      problems.push_back(error.message());
    }
  }
  if (!problems.empty()) fleet_.explain(Error(ErrorKind::process_failed, join(problems, "\n")));
}

PushReport WeightPush::run(const std::function<void()>& before_resume) {
  PushReport report;
  if (initialised_.empty()) heed_earlier_versions();
  report.version = ledger_.take_candidate();
  Json engines = Json::array();
  for (int id = 0; id < fleet_.size(); ++id) {
    const weights::EngineAddress& address = fleet_.engine(id).address();
    engines.push_back({{"id", id},
                       {"url", address.url},
                       {"token", address.token},
                       {"protocol", address.protocol},
                       {"init", !initialised_.contains(id)}});
  }
  const auto preparing = SteadyClock::now();
  trainer_asked_ = probe_is_due();
  if (trainer_asked_) probe_.ask_trainer();
  fs::path folder;
  if (any_folders()) {
    trainers_.call_all("/write_model", {{"folder", folders_.begin(report.version, options_.weights_bytes).string()}});
    folder = folders_.publish(report.version);
    report.prepare_s = seconds_since(preparing);
  }
  trainers_.call_all("/prepare_push", Json::object());
  const auto start = SteadyClock::now();
  fleet_.pause_all();
  const std::vector<Json> replies = trainers_.call_all(
      "/push", {{"version", report.version}, {"engines", engines}, {"checksums", options_.compare_contents}});
  require_all_engines(replies);
  if (any_folders()) load_from(folder, report.version);
  for (int id = 0; id < fleet_.size(); ++id) initialised_.insert(id);
  for (int id = 0; id < fleet_.size(); ++id) fleet_.engine(id).record_version(report.version);

  const std::vector<std::string> problems = weights::version_problems(report.version, fleet_.versions());
  if (!problems.empty()) fleet_.explain(Error(ErrorKind::check_failed, join(problems, "\n")));
  if (options_.compare_contents) compare(replies);
  ledger_.commit(report.version);
  report.transfer_s = seconds_since(start);
  if (before_resume) before_resume();
  fleet_.resume_all();
  report.pause_s = seconds_since(start);
  add_figures(replies, report);
  return report;
}

// An engine that ran before this one may be on any number: the next must be above it, or an engine that took nothing
// would pass for one that did.
void WeightPush::heed_earlier_versions() {
  for (const weights::EngineVersion& version : fleet_.versions()) {
    if (!version.readable) continue;  // the push will tell
    try {
      ledger_.observe(weights::parse_version(version.text, version.engine));
    } catch (const Error&) {  // another text is no number of ours
    }
  }
}

bool WeightPush::probe_is_due() const {
  if (!options_.probe_always && probed_) return false;
  for (int id = 0; id < fleet_.size(); ++id) {
    if (!fleet_.engine(id).protocol().tells_checksums()) return true;
  }
  return false;
}

void WeightPush::check_engines() {
  if (!trainer_asked_) return;
  std::vector<std::string> wrong;
  for (const EngineProblem& problem : probe_.ask_engines()) {
    if (problem.of_arithmetic && !options_.probe_always) {
      log::warning("loop", problem.text);
    } else {
      wrong.push_back(problem.text);
    }
  }
  probed_ = true;
  if (wrong.empty()) return;
  try {
    fleet_.pause_all();  // nobody is to be answered with these weights
  } catch (const Error& error) {
    log::warning("loop", error.message());
  }
  throw Error(ErrorKind::check_failed,
              "contents of version " + std::to_string(ledger_.committed()) + ": " + join(wrong, "\n"));
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
    if (!fleet_.engine(id).protocol().tells_checksums()) continue;
    hold("engine " + std::to_string(id), fleet_.checksums(id), true);
  }
  if (!problems.empty()) {
    throw Error(ErrorKind::check_failed,
                "contents of version " + std::to_string(ledger_.ever_sent()) + " differ: " + join(problems, "\n"));
  }
}

}  // namespace vime::loop
