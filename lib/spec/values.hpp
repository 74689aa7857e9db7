// One value of a key: read from YAML by strict rules, and written so that it reads back to the same value.
#pragma once

#include <string>

#include "spec/keys.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {

// Stores the node's value in `field`. Returns "", or what is wrong (`must be a number above 0, found "fast"`) and
// leaves `field` alone.
std::string read_value(const Key& key, const YamlNode& node, const Field& field);

// "2.0e-3" is no different from "0.002"; text is quoted only where it must be.
std::string write_value(const Field& field);

// "a number above 0", "one of grpo, gspo": type and limits of a key in words.
std::string expected_value(const Key& key);

// "integer", "size", ...
std::string type_name(const Key& key);

}  // namespace vime::spec
