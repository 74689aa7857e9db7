#include "sweep/coverage.hpp"

#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace vime::sweep {
namespace {

using Replica = std::pair<int, int>;  // (dp, cp)

class Coverage {
 public:
  explicit Coverage(const StepRecord& leg) : leg_(leg) {
    check_.name = "coverage";
    for (const RankRecord& rank : leg.ranks) replicas_.insert({rank.place.dp_rank, rank.place.cp_rank});
  }

  void parameter(const std::string& name, const tensor::Shape& shape) {
    // The dimension that is cut is the same on every rank; a scalar counts as one row.
    size_t dim = 0;
    std::map<Replica, std::vector<int>> owners;
    for (const RankRecord& rank : leg_.ranks) {
      for (const ShardRecord& shard : rank.shards) {
        if (shard.name != name || !shard.shard.owner()) continue;
        dim = static_cast<size_t>(shard.shard.dim);
        std::vector<int>& counts = owners[{rank.place.dp_rank, rank.place.cp_rank}];
        counts.resize(shape.empty() ? 1 : static_cast<size_t>(shape[dim]), 0);
        for (int64_t i = shard.shard.begin; i < shard.shard.end; ++i) ++counts.at(static_cast<size_t>(i));
      }
    }
    for (const Replica& replica : replicas_) {
      std::vector<int>& counts = owners[replica];
      counts.resize(shape.empty() ? 1 : static_cast<size_t>(shape[dim]), 0);
      for (size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] == 1) continue;
        report(name + ": " + (dim == 0 ? "row " : "column ") + std::to_string(i) + " is held by " +
               std::to_string(counts[i]) + " owners of replica dp " + std::to_string(replica.first) + " cp " +
               std::to_string(replica.second) + ", expected one");
      }
    }
  }

  void tokens(const char* what, std::vector<double> RankRecord::*values, size_t count) {
    for (size_t token = 0; token < count; ++token) {
      std::set<int> dp_ranks;
      for (const RankRecord& rank : leg_.ranks) {
        if (!std::isnan((rank.*values).at(token))) dp_ranks.insert(rank.place.dp_rank);
      }
      if (dp_ranks.size() == 1) continue;
      report(std::string(what) + " of response token " + std::to_string(token) + " of the batch are computed by " +
             std::to_string(dp_ranks.size()) + " data-parallel ranks, expected one");
    }
  }

  Check take() {
    check_.error = static_cast<double>(problems_);
    if (problems_ > 0) {
      check_.where = "step " + std::to_string(leg_.step) + ", " + first_;
      check_.failure = "step " + std::to_string(leg_.step) + ": " + first_ + " (first of " + std::to_string(problems_) +
                       " such places)";
    }
    return check_;
  }

 private:
  void report(const std::string& problem) {
    if (problems_++ == 0) first_ = problem;
  }

  const StepRecord& leg_;
  std::set<Replica> replicas_;
  Check check_;
  int64_t problems_ = 0;
  std::string first_;
};

}  // namespace

Check check_coverage(const StepRecord& baseline, const StepRecord& leg) {
  Coverage coverage(leg);
  const RankRecord& whole = baseline.ranks.front();
  for (const ShardRecord& parameter : whole.shards) coverage.parameter(parameter.name, parameter.full_shape);
  coverage.tokens("log-probs", &RankRecord::logprobs, whole.logprobs.size());
  coverage.tokens("log-probs after the step", &RankRecord::logprobs_after, whole.logprobs_after.size());
  return coverage.take();
}

}  // namespace vime::sweep
