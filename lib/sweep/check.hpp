// The outcome of one kind of comparison over a whole leg: how large the largest error was, how large it may be, and
// where it was found, so that a user can read how close a pass was. Pure.
#pragma once

#include <string>
#include <vector>

namespace vime::sweep {

struct Check {
  std::string name;  // "gradients"
  double error = 0.0;
  double tolerance = 0.0;
  std::string where = {};  // of the largest error: "step 1, rank 5 (...), model.norm.weight [3]"; "" when there is none
  std::string failure = {};  // the first that is too large, as a sentence; "" = passed
  bool passed() const { return failure.empty(); }
};

// Every check that a leg must have gone through to pass, in the order of reports.
const std::vector<std::string>& check_names();

// Whether `one` uses more of what it is allowed than `other`; what is allowed may differ between steps and legs. An
// error that is not a number is further than any other.
bool is_further(const Check& one, const Check& other);

// Takes in the same checks of another step, engine or kind: the error that is further stays, with its tolerance, and
// the failure that came first.
void merge_checks(std::vector<Check>& into, const std::vector<Check>& more);

// "1.3e-06"
std::string error_text(double error);

}  // namespace vime::sweep
