// JSON values (keys keep their order) and typed access that names the place when a value is absent or of another type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace vime {

using Json = nlohmann::ordered_json;

}  // namespace vime

// Writing is compiled once, in json.cpp; as templates it costs every file that says dump some seconds. Reading
// likewise: parse_json() instead of Json::parse().
template <>
std::string vime::Json::dump(int indent, char indent_char, bool ensure_ascii, error_handler_t error_handler) const;

namespace vime {

// Throws Json::parse_error for what is no JSON.
Json parse_json(const std::string& text);
// Json::is_discarded() is true of what comes for a text that is no JSON.
Json try_parse_json(const std::string& text);
// `what` names the text in errors ("reply of engine 0 to /weight_info"). Throws Error{kind}.
Json parse_json(const std::string& text, const std::string& what, ErrorKind kind = ErrorKind::process_failed);

// Members of an object; each throws Error{process_failed, "<what>: \"key\" is missing"} or "... expected a string,
// found 3".
const Json& json_member(const Json& object, std::string_view key, std::string_view what);
std::string json_string(const Json& object, std::string_view key, std::string_view what);
int64_t json_int(const Json& object, std::string_view key, std::string_view what);
double json_number(const Json& object, std::string_view key, std::string_view what);
bool json_bool(const Json& object, std::string_view key, std::string_view what);
std::vector<int64_t> json_ints(const Json& object, std::string_view key, std::string_view what);

}  // namespace vime
