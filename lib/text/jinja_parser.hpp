// Reads a template into its tree. Pure function; any thread.
#pragma once

#include <string_view>

#include "text/jinja_syntax.hpp"

namespace vime::text::jinja {

// Error{refused} names the line and what is wrong there, or which construct is not supported.
Block parse(std::string_view source);

}  // namespace vime::text::jinja
