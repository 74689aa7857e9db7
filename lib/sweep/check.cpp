#include "sweep/check.hpp"

#include <algorithm>
#include <cmath>

#include "base/strings.hpp"

namespace vime::sweep {

const std::vector<std::string>& check_names() {
  static const std::vector<std::string> names = {"coverage", "grad_norm", "gradients", "loss",           "logprobs",
                                                 "weights",  "versions",  "contents",  "engine_logprobs"};
  return names;
}

bool is_further(const Check& one, const Check& other) {
  if (std::isnan(other.error)) return false;
  if (one.tolerance == other.tolerance) return !(one.error <= other.error);
  return !(one.error * other.tolerance <= other.error * one.tolerance);
}

void merge_checks(std::vector<Check>& into, const std::vector<Check>& more) {
  for (const Check& check : more) {
    const auto found = std::find_if(into.begin(), into.end(), [&](const Check& c) { return c.name == check.name; });
    if (found == into.end()) {
      into.push_back(check);
      continue;
    }
    if (is_further(check, *found)) {
      found->error = check.error;
      found->tolerance = check.tolerance;
      found->where = check.where;
    }
    if (found->failure.empty()) found->failure = check.failure;
  }
}

std::string error_text(double error) {
  return format_number(error, 2);
}

}  // namespace vime::sweep
