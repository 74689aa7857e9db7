// The target of a request ("/sleep?tags=a&tags=b") taken apart and decoded. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace vime::http {

struct Target {
  std::string path;
  std::multimap<std::string, std::string> query;  // values of one key keep their order
};

// Nothing when the target does not start with "/" or holds a "%" that two hex digits do not follow.
// "+" is a space in the query only. "http://host/path" counts as "/path" (RFC 9112, section 3.2.2).
std::optional<Target> parse_target(std::string_view text);

}  // namespace vime::http
