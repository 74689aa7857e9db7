#include "base/json.hpp"

namespace vime {
namespace {

[[noreturn]] void wrong_type(const Json& value, const std::string& key, const std::string& what, const char* expected) {
  std::string found = value.dump();
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  throw Error(ErrorKind::process_failed, what + ": \"" + key + "\": expected " + expected + ", found " + found);
}

}  // namespace

Json parse_json(const std::string& text, const std::string& what, ErrorKind kind) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    std::string start = text.substr(0, 80);
    throw Error(kind, what + ": not JSON: \"" + start + (text.size() > 80 ? "...\"" : "\""));
  }
}

const Json& json_member(const Json& object, const std::string& key, const std::string& what) {
  if (!object.is_object())
    throw Error(ErrorKind::process_failed, what + ": expected an object, found " + object.dump());
  auto found = object.find(key);
  if (found == object.end()) throw Error(ErrorKind::process_failed, what + ": \"" + key + "\" is missing");
  return *found;
}

std::string json_string(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_string()) wrong_type(value, key, what, "a string");
  return value.get<std::string>();
}

int64_t json_int(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_number_integer()) wrong_type(value, key, what, "an integer");
  return value.get<int64_t>();
}

double json_number(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_number()) wrong_type(value, key, what, "a number");
  return value.get<double>();
}

bool json_bool(const Json& object, const std::string& key, const std::string& what) {
  const Json& value = json_member(object, key, what);
  if (!value.is_boolean()) wrong_type(value, key, what, "true or false");
  return value.get<bool>();
}

std::vector<int64_t> json_ints(const Json& object, const std::string& key, const std::string& what) {
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
