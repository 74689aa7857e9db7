// The filters and tests of templates, as Jinja 3.1 has them. One thread per rendering.
#pragma once

#include <string>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

// Applies a filter. Error{refused} for one that is not supported, naming it.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget);

// Applies a test ("is defined"). Error{refused} for one that is not supported, naming it.
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget);

bool is_known_test(const std::string& name);

}  // namespace vime::text::jinja
