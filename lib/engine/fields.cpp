#include "engine/fields.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/strings.hpp"

namespace vime::engine {
namespace {

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

}  // namespace

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object())
    throw Error(ErrorKind::refused, where_ + ": expected a JSON object, found " + shown(object_));
}

void Fields::refuse(const std::string& key, const std::string& expected) const {
  throw Error(ErrorKind::refused,
              where_ + ": \"" + key + "\": expected " + expected + ", found " + shown(object_.at(key)));
}

const Json* Fields::find(const std::string& key) {
  known_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> Fields::integer(const std::string& key, int64_t least, int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    const std::string lower = least == std::numeric_limits<int64_t>::min() ? "" : " from " + std::to_string(least);
    const std::string upper = most == std::numeric_limits<int64_t>::max() ? "" : " to " + std::to_string(most);
    refuse(key, "an integer" + lower + upper);
  }
  return value->get<int64_t>();
}

std::optional<double> Fields::number(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "a number");
  return value->get<double>();
}

std::optional<bool> Fields::boolean(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<int32_t>> Fields::ids(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return token_list(*value, where_ + ": \"" + key + "\"");
}

void Fields::neutral(const std::string& key, const std::vector<Json>& values) {
  const Json* value = find(key);
  if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
  throw Error(ErrorKind::refused, where_ + ": \"" + key + "\": this engine supports only " + shown(values.front()) +
                                      ", found " + shown(*value));
}

void Fields::ignore(const std::string& key) {
  known_.push_back(key);
}

void Fields::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = nearest_name(key, known_);
    throw Error(ErrorKind::refused,
                where_ + ": unknown key \"" + key + "\"" + (near.empty() ? "" : " (did you mean \"" + near + "\"?)"));
  }
}

std::vector<int32_t> token_list(const Json& value, const std::string& what) {
  if (!value.is_array())
    throw Error(ErrorKind::refused, what + ": expected a list of token ids, found " + shown(value));
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool fits = item.is_number_integer() && item.get<int64_t>() >= 0 &&
                      item.get<int64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) {
      throw Error(ErrorKind::refused, what + ": expected token ids (integers >= 0), found " + shown(item) +
                                          " at position " + std::to_string(ids.size()));
    }
    ids.push_back(static_cast<int32_t>(item.get<int64_t>()));
  }
  return ids;
}

}  // namespace vime::engine
