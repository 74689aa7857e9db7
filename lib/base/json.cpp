#include "base/json.hpp"

using vime::Json;

template <>
std::string Json::dump(int indent, char indent_char, bool ensure_ascii, error_handler_t error_handler) const {
  std::string text;
  serializer writer(nlohmann::detail::output_adapter<char, std::string>(text), indent_char, error_handler);
  writer.dump(*this, indent >= 0, ensure_ascii, indent >= 0 ? static_cast<unsigned>(indent) : 0);
  return text;
}

namespace vime {
namespace {

// The value's start; bytes that are not UTF-8 are replaced, for an error text must never fail itself.
std::string excerpt(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

[[noreturn]] void wrong_type(const Json& value, std::string_view key, std::string_view what, const char* expected) {
  throw Error(ErrorKind::process_failed,
              std::string(what) + ": \"" + std::string(key) + "\": expected " + expected + ", found " + excerpt(value));
}

}  // namespace

Json parse_json(const std::string& text) {
  return Json::parse(text);
}

Json try_parse_json(const std::string& text) {
  return Json::parse(text, nullptr, false);
}

Json parse_json(const std::string& text, const std::string& what, ErrorKind kind) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    std::string start = text.substr(0, 80);
    throw Error(kind, what + ": not JSON: \"" + start + (text.size() > 80 ? "...\"" : "\""));
  }
}

const Json& json_member(const Json& object, std::string_view key, std::string_view what) {
  if (!object.is_object()) {
    throw Error(ErrorKind::process_failed, std::string(what) + ": expected an object, found " + excerpt(object));
  }
  const auto found = object.find(std::string(key));
  if (found == object.end()) {
    throw Error(ErrorKind::process_failed, std::string(what) + ": \"" + std::string(key) + "\" is missing");
  }
  return *found;
}

std::string json_string(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_string()) wrong_type(value, key, what, "a string");
  return value.get<std::string>();
}

int64_t json_int(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_number_integer()) wrong_type(value, key, what, "an integer");
  return value.get<int64_t>();
}

double json_number(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_number()) wrong_type(value, key, what, "a number");
  return value.get<double>();
}

bool json_bool(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_boolean()) wrong_type(value, key, what, "true or false");
  return value.get<bool>();
}

std::vector<int64_t> json_ints(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_array()) wrong_type(value, key, what, "a list of integers");
  std::vector<int64_t> ints;
  ints.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer()) wrong_type(value, key, what, "a list of integers");
    ints.push_back(item.get<int64_t>());
  }
  return ints;
}

}  // namespace vime
