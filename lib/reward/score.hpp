// What goes in and out of every reward: an item, its score, and the tally of a rollout. A score is a finite number of
// sane size or it is nothing, with the reason why: an absent, null, NaN, infinite or non-numeric answer never becomes a
// number. A sample without a number keeps no reward and does not train; check_missing() is the limit on how many there
// may be. Plain values; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace vime::reward {

struct ScoreItem {
  std::string prompt;
  std::string response;
  std::string label = {};
  std::string metadata = {};  // JSON text of the data set's line, or ""
  std::string type = {};      // this sample's own reward type, or "" for the run's
  int64_t sample = 0;         // named in errors and told to commands and services
};

// Why there is no number.
enum class Missing {
  none,         // there is one
  absent,       // the answer has no value under reward_key
  null,         // the value is null
  not_finite,   // NaN, infinite, or beyond kLargestReward
  not_numeric,  // text, true or false, a list, an object
  malformed,    // the answer breaks the protocol
  timeout,      // no answer by the deadline
  failed,       // the command died twice over it, the service refused it or stayed unreachable, or the answer says so
  limit,        // a regular expression took too many steps
  bad_label,    // the label is none that this reward can compare with
};
inline constexpr size_t kMissingReasons = 10;
const char* missing_name(Missing why);  // "absent", "null", ...

struct Score {
  std::optional<double> value;
  Missing why = Missing::none;
  std::string problem;  // a sentence, when there is no value
};

Score no_score(Missing why, std::string problem);
// The number as a score: refused as not_finite when it is NaN, infinite, or beyond kLargestReward.
Score score_of(double value);

// Larger magnitudes are refused as rewards: their squares and sums must stay finite in every formula that follows.
inline constexpr double kLargestReward = 1e30;
// The value itself, or nothing where it is NaN, infinite or beyond kLargestReward.
std::optional<double> accepted(double value);

struct Tally {
  int64_t scored = 0;
  std::array<int64_t, kMissingReasons> missing{};  // by reason
  std::string example;                             // the problem of the first sample that got no number

  void add(const Score& score);
  int64_t without_number() const;
  std::string by_reason() const;  // "3 timeout, 1 null"; "" when every sample has a number
};

// Error{process_failed} when more than `max_missing_ratio` of all `samples` of a rollout, those that are still to be
// scored included, have no number; it names the counts by reason and the example.
void check_missing(const Tally& tally, int64_t samples, double max_missing_ratio);

}  // namespace vime::reward
