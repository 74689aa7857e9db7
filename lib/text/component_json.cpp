#include "text/component_json.hpp"

namespace vime::text {
namespace {

[[noreturn]] void wrong_type(const std::string& where, std::string_view key, const char* expected) {
  throw Error(ErrorKind::refused, where + "." + std::string(key) + ": expected " + expected);
}

}  // namespace

void refuse_component(const std::string& where, const std::string& found, const std::string& supported) {
  throw Error(ErrorKind::refused, where + ": " + found + " is not supported", "supported: " + supported);
}

const Json* optional_member(const Json& component, std::string_view key) {
  if (!component.is_object()) return nullptr;
  const auto found = component.find(std::string(key));
  return found == component.end() || found->is_null() ? nullptr : &*found;
}

std::string component_type(const Json& component, const std::string& where) {
  return text_member(component, "type", where);
}

std::string text_member(const Json& component, std::string_view key, const std::string& where) {
  const Json* member = optional_member(component, key);
  if (member == nullptr || !member->is_string()) wrong_type(where, key, "a string");
  return member->get<std::string>();
}

bool flag_member(const Json& component, std::string_view key, bool absent, const std::string& where) {
  const Json* member = optional_member(component, key);
  if (member == nullptr) return absent;
  if (!member->is_boolean()) wrong_type(where, key, "true or false");
  return member->get<bool>();
}

int64_t count_member(const Json& component, std::string_view key, int64_t absent, const std::string& where) {
  const Json* member = optional_member(component, key);
  if (member == nullptr) return absent;
  if (!member->is_number_integer() || member->get<int64_t>() < 0) wrong_type(where, key, "a count");
  return member->get<int64_t>();
}

const Json& list_member(const Json& component, std::string_view key, const std::string& where) {
  const Json* member = optional_member(component, key);
  if (member == nullptr || !member->is_array()) wrong_type(where, key, "a list");
  return *member;
}

}  // namespace vime::text
