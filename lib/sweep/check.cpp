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

void merge_checks(std::vector<Check>& into, const std::vector<Check>& more) {
  for (const Check& check : more) {
    const auto found = std::find_if(into.begin(), into.end(), [&](const Check& c) { return c.name == check.name; });
    if (found == into.end()) {
      into.push_back(check);
      continue;
    }
    if (!std::isnan(found->error) && !(check.error <= found->error)) {
      found->error = check.error;
      found->where = check.where;
    }
    if (found->failure.empty()) found->failure = check.failure;
  }
}

std::string error_text(double error) {
  return format_number(error, 2);
}

}  // namespace vime::sweep
