// The rule for weight versions: one number never names two different contents.
// A candidate is 1 + the largest number committed, ever sent, or reported by an engine that vime did not start.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vime::weights {

// "default" (never pushed) is 0. Anything else must be a plain decimal integer >= 0: Error{check_failed} names the
// engine and the text.
int64_t parse_version(const std::string& text, const std::string& engine);

// Owned by the driver; restored from the last checkpoint on resume.
class VersionLedger {
 public:
  VersionLedger(int64_t committed = 0, int64_t ever_sent = 0) : committed_(committed), ever_sent_(ever_sent) {}

  int64_t committed() const { return committed_; }
  int64_t ever_sent() const { return ever_sent_; }

  void observe(int64_t reported);  // by an engine that was running before
  // Takes the next number and counts it as sent, whatever becomes of the push.
  int64_t take_candidate();
  void commit(int64_t version);  // must be the last candidate

 private:
  int64_t committed_;
  int64_t ever_sent_;
};

// What one engine says after a push.
struct EngineVersion {
  std::string engine;     // "engine 0"
  bool readable = false;  // an answer came and held a version text
  std::string text;       // the version text, or why there is none
};

// One sentence for each engine that is not on `expected`; empty when all are. An unreadable version is never taken as
// right.
std::vector<std::string> version_problems(int64_t expected, const std::vector<EngineVersion>& engines);

// One sentence for each holder (an engine, another replica) whose content differs from the trainer's: the first
// parameter that differs, and how many do. Maps hold name -> checksum.
std::vector<std::string> checksum_problems(const std::map<std::string, uint64_t>& trainer,
                                           const std::map<std::string, std::map<std::string, uint64_t>>& engines);

}  // namespace vime::weights
