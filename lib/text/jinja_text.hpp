// Values as text: Python's str() and repr(), and json.dumps. Pure functions; one thread per Budget.
#pragma once

#include <optional>
#include <string>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

std::string to_text(const Value& value, Budget& budget);  // str(); what {{ }} writes
std::string to_repr(const Value& value, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; none: all on one line
  std::optional<std::string> item_separator;
  std::optional<std::string> key_separator;
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace vime::text::jinja
