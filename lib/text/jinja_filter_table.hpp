// What the one table of filters is made of. Only the files that define filters and the table include this.
#pragma once

#include <map>
#include <string>

#include "text/jinja_text.hpp"
#include "text/jinja_value.hpp"

namespace vime::text::jinja {

struct FilterCall {
  const std::string& name;  // of the filter: some functions stand for several
  const Value& value;
  const Arguments& arguments;
  Budget& budget;

  std::string text() const { return to_text(value, budget); }
};

using FilterTable = std::map<std::string, Value (*)(const FilterCall&)>;

// jinja_text_filters.cpp: on text and numbers.
FilterTable text_filters();
// jinja_sequence_filters.cpp
FilterTable sequence_filters();

}  // namespace vime::text::jinja
