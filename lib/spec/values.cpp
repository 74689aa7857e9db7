#include "spec/values.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

#include "base/json.hpp"
#include "base/strings.hpp"

namespace vime::spec {
namespace {

struct Unit {
  const char* name;
  uint64_t factor;
};
// Largest first: the printer takes the first that divides.
constexpr Unit kSizeUnits[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1}};
constexpr Unit kTimeUnits[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Decimal digits with an optional sign, no leading zero (YAML 1.1 would read 010 as 8).
std::optional<int64_t> parse_integer(std::string_view text) {
  std::string_view digits = text;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (!all_digits(digits) || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Finite decimals such as 1, -0.5, 2.0e-3, 1e6.
std::optional<double> parse_number(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  if (text.find_first_not_of("+-.0123456789eE") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// "512MiB" with one of the units; digits alone only where `bare` gives their factor.
template <size_t N>
std::optional<uint64_t> parse_measure(std::string_view text, const Unit (&units)[N], uint64_t bare) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (digits == 0 || error != std::errc() || end != text.data() + digits) return std::nullopt;
  const std::string_view name = text.substr(digits);
  uint64_t factor = name.empty() ? bare : 0;
  for (const Unit& unit : units) {
    if (name == unit.name) factor = unit.factor;
  }
  if (factor == 0 || number > UINT64_MAX / factor) return std::nullopt;
  return number * factor;
}

template <size_t N>
std::string write_measure(uint64_t value, const Unit (&units)[N]) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) return std::to_string(value / unit.factor) + unit.name;
  }
  return "0" + std::string(units[N - 1].name);
}

std::string write_number(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  const std::string text(buffer, end);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

// Plain YAML would read these words as something else than text.
bool reads_as_other_type(const std::string& text) {
  static const char* const words[] = {"true", "false", "null", "yes", "no", "on", "off", "~", "y", "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::find(std::begin(words), std::end(words), lower) != std::end(words) || parse_number(text).has_value();
}

std::string write_text(const std::string& text) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:";
  const bool safe = !text.empty() && text.find_first_not_of(plain) == std::string::npos && text.front() != '-' &&
                    text.front() != ':' && text.back() != ':' && !reads_as_other_type(text);
  return safe ? text : Json(text).dump();
}

// Why a value of the right type does not lie in the limits; "" when it does.
std::string outside(const Key& key, double value, const std::string& found) {
  if (key.limits.contain(value)) return "";
  return "must be " + expected_value(key) + ", found " + found + (key.reason.empty() ? "" : ": " + key.reason);
}

std::string wrong_type(const Key& key, const YamlNode& node, const std::string& cure = "") {
  return "must be " + expected_value(key) + ", found " + describe(node) + (cure.empty() ? "" : " (" + cure + ")");
}

std::string read_bool(const Key& key, const YamlNode& node, bool& value) {
  if (node.kind == YamlNode::Kind::plain && (node.text == "true" || node.text == "false")) {
    value = node.text == "true";
    return "";
  }
  return wrong_type(key, node);
}

std::string read_integer(const Key& key, const YamlNode& node, int64_t& value) {
  const auto parsed = parse_integer(node.text);
  if (node.kind == YamlNode::Kind::quoted && parsed) return wrong_type(key, node, "leave the quotes out");
  if (node.kind != YamlNode::Kind::plain || !parsed) return wrong_type(key, node);
  const std::string wrong = outside(key, static_cast<double>(*parsed), node.text);
  if (wrong.empty()) value = *parsed;
  return wrong;
}

std::string read_number(const Key& key, const YamlNode& node, double& value) {
  const auto parsed = parse_number(node.text);
  if (node.kind == YamlNode::Kind::quoted && parsed) return wrong_type(key, node, "leave the quotes out");
  if (node.kind != YamlNode::Kind::plain || !parsed) return wrong_type(key, node);
  const std::string wrong = outside(key, *parsed, node.text);
  if (wrong.empty()) value = *parsed;
  return wrong;
}

std::string read_text(const Key& key, const YamlNode& node, std::string& value) {
  if (node.kind != YamlNode::Kind::plain && node.kind != YamlNode::Kind::quoted) return wrong_type(key, node);
  if (!key.choices.empty()) {
    if (std::find(key.choices.begin(), key.choices.end(), node.text) == key.choices.end()) {
      const std::string nearest = node.text.size() <= 64 ? nearest_name(node.text, key.choices) : "";
      std::string message = wrong_type(key, node, nearest.empty() ? "" : "did you mean \"" + nearest + "\"?");
      return key.reason.empty() ? message : message + ": " + key.reason;
    }
  } else if (node.kind == YamlNode::Kind::plain && reads_as_other_type(node.text)) {
    return wrong_type(key, node, "put it in quotes if it is meant as text");
  } else if (node.text.empty()) {
    return wrong_type(key, node);
  }
  value = node.text;
  return "";
}

std::string read_bytes(const Key& key, const YamlNode& node, Bytes& value) {
  const auto parsed = parse_measure(node.text, kSizeUnits, 1);
  if (node.kind != YamlNode::Kind::plain || !parsed) return wrong_type(key, node, "units: B, KiB, MiB, GiB, TiB");
  const std::string wrong = outside(key, static_cast<double>(*parsed), node.text);
  if (wrong.empty()) value.count = *parsed;
  return wrong;
}

std::string read_duration(const Key& key, const YamlNode& node, milliseconds& value) {
  const auto parsed = parse_measure(node.text, kTimeUnits, 0);
  if (node.kind != YamlNode::Kind::plain || !parsed || *parsed > INT64_MAX) {
    return wrong_type(key, node, "a whole number and a unit: ms, s, m, h");
  }
  const std::string wrong = outside(key, static_cast<double>(*parsed), node.text);
  if (wrong.empty()) value = milliseconds(static_cast<int64_t>(*parsed));
  return wrong;
}

std::string read_integers(const Key& key, const YamlNode& node, std::vector<int64_t>& values) {
  if (node.kind != YamlNode::Kind::list) return wrong_type(key, node);
  std::vector<int64_t> read;
  for (const YamlNode& item : node.items) {
    const auto parsed = item.kind == YamlNode::Kind::plain ? parse_integer(item.text) : std::nullopt;
    if (!parsed || !key.limits.contain(static_cast<double>(*parsed))) {
      return "must be " + expected_value(key) + ", found " + describe(item) + " in it";
    }
    read.push_back(*parsed);
  }
  values = std::move(read);
  return "";
}

std::string read_texts(const Key& key, const YamlNode& node, std::vector<std::string>& values) {
  std::vector<std::string> read;
  if (node.kind == YamlNode::Kind::list) {
    if (key.required && node.items.empty()) return "must be " + expected_value(key) + ", found an empty list";
    for (const YamlNode& item : node.items) {
      const std::string wrong = read_text(key, item, read.emplace_back());
      if (!wrong.empty()) return wrong + " in the list";
    }
  } else {
    if (!key.one_stands_for_list) return wrong_type(key, node);
    const std::string wrong = read_text(key, node, read.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  values = std::move(read);
  return "";
}

// The overloads by type, and optional ones: null clears.
std::string read_into(const Key& key, const YamlNode& node, bool* value) {
  return read_bool(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, int64_t* value) {
  return read_integer(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, double* value) {
  return read_number(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, std::string* value) {
  return read_text(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, Bytes* value) {
  return read_bytes(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, milliseconds* value) {
  return read_duration(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, std::vector<int64_t>* value) {
  return read_integers(key, node, *value);
}
std::string read_into(const Key& key, const YamlNode& node, std::vector<std::string>* value) {
  return read_texts(key, node, *value);
}
template <typename T>
std::string read_into(const Key& key, const YamlNode& node, std::optional<T>* value) {
  if (node.kind == YamlNode::Kind::null) {
    value->reset();
    return "";
  }
  T read{};
  std::string wrong = read_into(key, node, &read);
  if (wrong.empty()) *value = std::move(read);
  return wrong;
}

std::string write(bool value) {
  return value ? "true" : "false";
}
std::string write(int64_t value) {
  return std::to_string(value);
}
std::string write(double value) {
  return write_number(value);
}
std::string write(const std::string& value) {
  return write_text(value);
}
std::string write(const Bytes& value) {
  return write_measure(value.count, kSizeUnits);
}
std::string write(milliseconds value) {
  return write_measure(static_cast<uint64_t>(value.count()), kTimeUnits);
}
std::string write(const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (const int64_t value : values) items.push_back(std::to_string(value));
  return "[" + join(items, ", ") + "]";
}
std::string write(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const std::string& value : values) items.push_back(write_text(value));
  return "[" + join(items, ", ") + "]";
}
template <typename T>
std::string write(const std::optional<T>& value) {
  return value ? write(*value) : "null";
}

std::string limit_text(const Key& key, double value) {
  ExperimentSpec blank = blank_spec();
  const Field field = key.field(blank, 0);
  if (std::holds_alternative<Bytes*>(field)) return write_measure(static_cast<uint64_t>(value), kSizeUnits);
  if (std::holds_alternative<milliseconds*>(field)) return write_measure(static_cast<uint64_t>(value), kTimeUnits);
  // 16 digits show the largest seed, 2^53 - 1, in full.
  return format_number(value, 16);
}

// " above 0", " of at least 1", " from 1 to 8", ...
std::string limits_text(const Key& key) {
  const Limits& limits = key.limits;
  const bool has_least = std::isfinite(limits.least), has_most = std::isfinite(limits.most);
  const std::string least = limit_text(key, has_least ? limits.least : 0),
                    most = limit_text(key, has_most ? limits.most : 0);
  if (has_least && has_most) {
    return (limits.least_excluded ? " above " : " from ") + least + (limits.most_excluded ? " to below " : " to ") +
           most;
  }
  if (has_least) return (limits.least_excluded ? " above " : " of at least ") + least;
  return has_most ? " of at most " + most : "";
}

}  // namespace

std::string type_name(const Key& key) {
  if (key.sections) return "list of sections";
  const auto name_of = [](auto* pointer) -> std::string {
    using T = std::remove_pointer_t<decltype(pointer)>;
    if constexpr (std::is_same_v<T, bool>) return "boolean";
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>) return "integer";
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>) return "number";
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::optional<std::string>>) return "text";
    if constexpr (std::is_same_v<T, Bytes>) return "size";
    if constexpr (std::is_same_v<T, milliseconds>) return "duration";
    if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "list of integers";
    if constexpr (std::is_same_v<T, std::vector<std::string>>) return "list of texts";
  };
  ExperimentSpec blank = blank_spec();
  return std::visit(name_of, key.field(blank, 0));
}

std::string expected_value(const Key& key) {
  const std::string type = type_name(key);
  const bool texts = type == "list of texts";
  if (!key.choices.empty()) {
    const std::string choices = (key.choices.size() == 1 ? "" : "one of ") + join(key.choices, ", ");
    return !texts ? choices : key.one_stands_for_list ? choices + ", or a list of such" : "a list of " + choices;
  }
  if (texts) return key.one_stands_for_list ? "text or a list of texts" : "a list of texts";
  if (type == "list of sections") return "a list of sections (\"- " + key.sections->entry().keys[0].name + ": ...\")";
  if (type == "boolean") return "true or false";
  if (type == "text") return "text";
  if (type == "list of integers") return "a list of integers" + limits_text(key);
  if (key.limits.least == key.limits.most) return limit_text(key, key.limits.least);
  const std::string example = type == "size" ? " such as 512MiB" : type == "duration" ? " such as 900s" : "";
  return (type == "integer" ? "an " : "a ") + type + example + limits_text(key);
}

std::string read_value(const Key& key, const YamlNode& node, const Field& field) {
  return std::visit([&](auto* value) { return read_into(key, node, value); }, field);
}

std::string write_value(const Field& field) {
  return std::visit([](auto* value) { return write(*value); }, field);
}

}  // namespace vime::spec
