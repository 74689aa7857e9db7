// A spec as text: YAML that reads back to the same struct, and the reference of all keys.
#pragma once

#include <string>

#include "spec/spec.hpp"

namespace vime::spec {

// Every key with its value, in the table's order.
std::string to_yaml(const ExperimentSpec& spec);

// docs/spec.md.
std::string reference_markdown();

}  // namespace vime::spec
