// summary.json: how a run ended, for scripts. Plain data; writing blocks on the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::report {

// First, last and best (largest) score of one evaluation data set.
struct EvalFigures {
  std::string name;
  double first = 0.0;
  double last = 0.0;
  double best = 0.0;
  int64_t best_step = 0;
};

// Collects them in the order in which the data sets are first seen.
class EvalHistory {
 public:
  // A score that is not finite becomes last (and first), never best.
  void record(const std::string& name, int64_t step, double score);
  const std::vector<EvalFigures>& figures() const { return figures_; }

 private:
  std::vector<EvalFigures> figures_;
};

struct Summary {
  int64_t steps = 0;           // optimizer steps done
  int64_t weight_version = 0;  // last committed
  std::vector<EvalFigures> eval;
  double wall_time_s = 0.0;
  std::optional<Error> error;  // none: the run is ok
};

std::string status(const Summary& summary);  // "ok", "failed", "interrupted"
int exit_status(const Summary& summary);     // 0, or the error kind's
// {"status", "exit_status", "steps", "weight_version", "eval": {name: {"first", "last", "best", "best_step"}},
// "wall_time_s", "error": {"kind", "message", "hint"} | null}
Json to_json(const Summary& summary);
void write_summary(const fs::path& path, const Summary& summary);

}  // namespace vime::report
