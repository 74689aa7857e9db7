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

// Reading and writing whole texts is compiled once, in json.cpp: as templates they cost every file that says parse or
// dump five seconds.
template <>
std::string vime::Json::dump(int indent, char indent_char, bool ensure_ascii, error_handler_t error_handler) const;
template <>
template <>
vime::Json vime::Json::parse(const std::string& text, parser_callback_t callback, bool allow_exceptions,
                             bool ignore_comments);
template <>
template <>
vime::Json vime::Json::parse(std::string& text, parser_callback_t callback, bool allow_exceptions,
                             bool ignore_comments);
template <>
template <>
vime::Json vime::Json::parse(std::string&& text, parser_callback_t callback, bool allow_exceptions,
                             bool ignore_comments);

namespace vime {

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
