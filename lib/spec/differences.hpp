// What differs between two specs, by the key table.
#pragma once

#include <string>
#include <vector>

#include "spec/spec.hpp"

namespace vime::spec {

struct Difference {
  std::string key;  // "trainer.lr", "eval.datasets[0].temperature"
  std::string before;
  std::string now;  // both as a spec's text has them
};

// In the table's order. Of a list of sections the entries that both have are compared, and a difference in length is
// one of the list's own key: "2 entries", "3 entries".
std::vector<Difference> differences(const ExperimentSpec& before, const ExperimentSpec& now);

}  // namespace vime::spec
